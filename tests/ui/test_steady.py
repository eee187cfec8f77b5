"""The formula for a batch that is kept full against the engine that really keeps it full: were they
apart, notebook 03 would draw speeds and prices that its own simulator does not have."""

from __future__ import annotations

import numpy as np
import pytest

from course.explore.steady import BUDGET, kv_tokens, room, smallest_fit, steady_tpot_s
from course.serving.engine import EngineConfig, simulate_closed
from course.serving.pricing.linear import DoesNotFitError, RooflineStepCost
from course.serving.workload import Workload


@pytest.mark.parametrize(
    ("batch", "prompt", "output"),
    [(1, 512, 256), (16, 512, 256), (64, 2048, 256), (32, 8192, 512), (128, 128, 1024)],
)
def test_a_full_batch_goes_as_fast_as_the_engine(batch: int, prompt: int, output: int) -> None:
    cost = RooflineStepCost("Qwen3-8B", "H100-80GB-SXM")
    rounds = 12
    # Users who start together would read their prompts together for ever after: spread them out.
    rng = np.random.default_rng(3)
    lengths = np.full(rounds * batch, output)
    lengths[:batch] = rng.integers(1, output + 1, batch)
    work = Workload(np.zeros(lengths.size), np.full(lengths.size, prompt), lengths)
    config = EngineConfig(max_num_seqs=batch, max_num_batched_tokens=BUDGET + batch)
    run = simulate_closed(batch, 0.0, work, cost, config)
    ends = np.sort(run.finish_s)[3 * batch : 10 * batch + 1]
    tokens_per_s = output * (ends.size - 1) / (ends[-1] - ends[0])
    _, tpot_s = steady_tpot_s(cost, batch, prompt, output)
    assert batch / tpot_s == pytest.approx(tokens_per_s, rel=0.05)


def test_more_sequences_never_make_a_token_faster() -> None:
    """The search for the largest batch inside a promise halves its range, which needs this."""
    for gpu, n_gpus in (("H100-80GB-SXM", 1), ("B200-180GB-SXM", 8)):
        cost = RooflineStepCost("Llama-3.1-8B", gpu, n_gpus)
        times = [steady_tpot_s(cost, batch, 2048, 256)[1] for batch in range(1, 600)]
        assert np.all(np.diff(times) > 0)


def test_room_counts_whole_sequences_in_the_cache() -> None:
    cost = RooflineStepCost("Llama-3.1-8B", "RTX-4090")
    assert room(cost, 2048) * 2048 <= kv_tokens(cost) < (room(cost, 2048) + 1) * 2048


def test_a_model_is_spread_only_as_far_as_it_must() -> None:
    assert smallest_fit("Llama-3.1-8B", "H100-80GB-SXM", "bf16").n_gpus == 1
    assert smallest_fit("Llama-3.1-70B", "H100-80GB-SXM", "bf16").n_gpus == 2
    assert smallest_fit("Llama-3.1-70B", "L4", "bf16").n_gpus == 8
    with pytest.raises(DoesNotFitError):
        smallest_fit("Llama-3.1-405B", "L4", "bf16")
