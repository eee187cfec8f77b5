"""The figures and comparisons in notebook 10's prose: each stands in the text and holds.

Times of the recorded run may move when it is recorded anew, so the prose has none of them; what it
says about the run in words is held to the run here.
"""

from __future__ import annotations

import math
import statistics

import numpy as np
import pandas as pd
import pytest

from course import explore, paths
from course.exercises.ch10.e6_seats import _small_server
from course.exercises.registry import exercise
from course.explore.steady import decode_step
from course.explore.ch10.fit_carried import fit_carried
from course.explore.ch10.machine import recorded_run
from course.explore.ch10.measured_roofline import measured_roofline
from course.explore.ch10.predict_measure import predict_measure
from course.measure import fit_record, predict_decode_s
from course.measure.pool import pool_bytes
from course.serving.catalog.entries import model
from course.serving.pricing.linear import RooflineStepCost, StepFeatures
from course.words import rounded
from tests.notebooks.claims import prose_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def prose() -> str:
    """All text cells as one line."""
    return prose_of(10)


def recorded(explorer: object, preset: str, **values: object) -> object:
    """What an explorer computes at a preset, of the recorded run."""
    return explorer.result(explorer.state(preset, machine="recorded", **values))


def test_the_stand_in_is_what_the_prose_calls_it(prose: str) -> None:
    assert "recorded on two cores of a server" in prose
    assert recorded_run().device.processors == 2
    assert recorded_run().device.kind == "cpu"
    assert {"bf16", "fp32"} <= set(recorded_run().precisions)
    assert all(check.passed for check in recorded_run().checks)


def test_sixteen_vectors_cost_far_less_than_sixteen(prose: str) -> None:
    """The weights are read once: were it not so, batching would gain nothing here."""
    assert "another vector costs next to nothing" in prose
    assert "even *faster* than one" in prose
    assert recorded(measured_roofline, "Sixteen at once").times_first < 2


def test_the_ridge_moves_left_with_the_bytes(prose: str) -> None:
    assert "the ridge moves far to the left" in prose
    bf16 = recorded(measured_roofline, "Sixteen at once")
    fp32 = recorded(measured_roofline, "Twice the bytes")
    assert fp32.ridge_flop_per_byte < bf16.ridge_flop_per_byte / 2


def test_a_small_matrix_lies_lower_at_the_same_intensity(prose: str) -> None:
    assert "its points lie lower at the same operations a byte" in prose
    dense = fit_record(recorded_run(), "bf16").dense
    assert dense.overhead_s > 0
    small, large = 1e6, 16e6
    assert small / dense.seconds(small, 4 * small) < large / dense.seconds(large, 4 * large)


def test_the_corner_is_round_by_root_two(prose: str) -> None:
    assert "the square root makes it √2 times as long as either" in prose
    assert math.hypot(1, 1) == pytest.approx(math.sqrt(2))


def test_eight_sequences_never_take_eight_times_as_long(prose: str) -> None:
    """The room says eight times as long, or the same: weights read once forbid the first."""
    assert "The first forgets that the weights are read once for all." in prose
    for precision in ("bf16", "fp32"):
        game = recorded(predict_measure, "A step for eight", precision=precision)
        assert game.here_s / game.first_s < 6


def test_the_division_stands_beside_the_product(prose: str) -> None:
    """The first guess is a quotient; whoever made it must see what became of it."""
    assert "how many times the quotient the product took" in prose
    shell = explore.measured_roofline("One token at a time", predict=False, machine="recorded")
    r = shell.result
    assert f"the product took {rounded(r.here_s / r.copied_s, 2)} times that" in shell.sentence
    shell.close()
    sizes = [point.shape["buffer_bytes"] for point in recorded_run().of("copy")]
    assert "of several sizes the best was taken" in prose
    assert len(sizes) == 3
    assert sizes == sorted(sizes)
    assert r.copy_bytes_per_s == max(point.bytes_per_s for point in recorded_run().of("copy"))


def test_the_factor_of_whole_steps_is_carried(prose: str) -> None:
    """Section 3 finds that sums are short; section 4 must not forget it."""
    assert (
        "the ratio of the run's whole steps to the sums of their kernels, and multiplies" in prose
    )
    fit = fit_record(recorded_run(), "bf16")
    steps = recorded_run().of("model_decode", "bf16")
    ratios = [
        p.median_s
        / predict_decode_s(fit, recorded_run().model, p.shape["batch"], p.shape["context_tokens"])
        for p in steps
    ]
    shown = recorded(fit_carried, "One reader")
    assert shown.whole_over_parts == pytest.approx(statistics.median(ratios))


def test_a_ridge_in_tokens_is_one_in_operations_a_byte(prose: str) -> None:
    assert "In bf16 that is the same number" in prose
    ridge = fit_record(recorded_run(), "bf16").dense.ridge_flop_per_byte
    assert recorded(fit_carried, "One reader").yours.ridge_batch == pytest.approx(ridge, rel=0.02)


def test_a_prompt_makes_a_step_longer_by_what_the_hint_says() -> None:
    """Whoever computes 276 ms and adds it to the reading finds seats that are too few."""
    hints = " ".join(exercise("10.6").hints)
    assert "A prompt of 460 tokens computes for 276 ms" in hints
    assert "is about 232 ms" in hints
    cost = _small_server()
    seats, context = 18, 575
    decode = StepFeatures(0, 0, seats, seats * context)
    both = StepFeatures(460, 460 * 460 // 2, seats, seats * context)
    longer_s = cost.step_seconds(both) - cost.step_seconds(decode)
    assert 460 * 2 * cost.model.active_parameters / 25e12 == pytest.approx(0.276, abs=0.0005)
    assert longer_s == pytest.approx(0.232, abs=0.003)


def test_the_pool_is_larger_than_the_cache(prose: str) -> None:
    assert "a pool of random numbers larger than the cache" in prose
    cache_bytes = recorded_run().device.cache_bytes
    assert pool_bytes(cache_bytes, 0, 2**40) > cache_bytes


def test_calibration_never_counts_the_step_it_saw(prose: str) -> None:
    assert "the step that was looked at is not counted among them" in prose
    plain = recorded(predict_measure, "A step for eight")
    calibrated = recorded(predict_measure, "With one measured step")
    assert calibrated.off.size == plain.off.size - 1


def test_what_a_prediction_is_worth(prose: str) -> None:
    """A reader who plans with these figures must not find the course's own table worse."""
    of_all = pd.read_csv(paths.DATA / "validation" / "serving_points.csv")
    points = of_all[of_all.kind == "dense"]
    assert "hundreds of published throughputs" in prose
    assert len(points) > 200
    ratio = points.predicted_tokens_per_s / points.measured_tokens_per_s
    assert "nine of ten came out within a fifth" in prose
    assert 0.15 < (ratio - 1).abs().quantile(0.9) < 0.2
    worst = ratio[(ratio - 1).abs().idxmax()]
    assert "itself derived from others, was off by a factor of three" in prose
    assert round(worst) == 3
    assert points.throughput_is[(ratio - 1).abs().idxmax()] == "derived"
    own = (points.own_tokens_per_s / points.measured_tokens_per_s - 1).abs()
    assert "nine of ten are within a tenth" in prose
    assert 0.07 < own.quantile(0.9) < 0.1
    assert "of a mixture of experts nine of ten came out within a factor of 1.5" in prose
    mixtures = of_all[of_all.kind == "experts"]
    factors = mixtures.predicted_tokens_per_s / mixtures.measured_tokens_per_s
    assert 1.25 < np.exp(np.abs(np.log(factors)).quantile(0.9)) < 1.5


def test_curves_lie_apart_by_bandwidths_then_by_peaks(prose: str) -> None:
    assert "apart by nearly the ratio of the **bandwidths**" in prose
    assert "120 times, where the bandwidths differ 156 times" in prose
    assert "the ratio of the **peaks**, 1,111, and stay below it while caches are read: 370" in prose
    low = recorded(fit_carried, "One reader", context_tokens=128)
    fit = fit_record(recorded_run(), "bf16")
    cost = RooflineStepCost("Llama-3.1-8B", "H100-80GB-SXM")
    reached = cost.constants.mbu * cost.gpu.bandwidth_bytes_per_s
    bandwidths = reached / fit.dense.bandwidth_bytes_per_s
    # overhead and launches have a share in the card's step, none to speak of in the slow machine's
    assert low.times == pytest.approx(bandwidths, rel=0.3)
    assert round(bandwidths) == 156
    assert round(recorded(fit_carried, "One reader").times, -1) == 120
    peak = cost.constants.mfu_bf16 * cost.gpu.peak_bf16_flop_per_s
    peaks = peak / fit.dense.peak_flop_per_s
    high = recorded(fit_carried, "One reader", context_tokens=128, batch=1024)
    assert high.times == pytest.approx(peaks, rel=0.3)
    assert peaks == pytest.approx(1111, rel=0.002)
    assert round(recorded(fit_carried, "One reader", batch=256).times, -1) == 370


def test_the_hoarder_has_fewer_weights_and_four_times_the_cache(prose: str) -> None:
    assert "fewer weights and four times the cache a token, and loses at large batches" in prose
    old, new = model("Llama-2-7B"), model("Llama-3.1-8B")
    assert old.streamed_parameters < new.streamed_parameters
    assert old.kv_bytes_per_token() == 4 * new.kv_bytes_per_token()
    steps = [
        RooflineStepCost(name, "H100-80GB-SXM").step_seconds(decode_step(64, 1024))
        for name in ("Llama-2-7B", "Llama-3.1-8B")
    ]
    assert steps[0] > steps[1]
    shown = [recorded(fit_carried, "A model that hoards", model=m) for m in (old.name, new.name)]
    assert shown[0].yours.here_s > shown[1].yours.here_s


def test_the_other_machine_is_asked_for_the_same_work(prose: str) -> None:
    """What the explorer serves is the model that the prose names."""
    assert "an 8-billion-parameter model decodes" in prose
    assert recorded(fit_carried, "One reader").model == "Llama-3.1-8B"
    assert model("Llama-3.1-8B").parameters == pytest.approx(8e9, rel=0.01)


def test_a_layer_has_four_products(prose: str) -> None:
    assert "four products a layer" in prose
    shape = recorded_run().model
    assert sum(count for count, _, _ in shape.matrices) == 4 * shape.layers + 1
