"""What a step costs: bytes, seconds and dollars from a model's shape and a card's data sheet."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course.serving import catalog
from course.serving.engine import EngineConfig, simulate
from course.serving.pricing.linear import (
    COEFFICIENTS,
    DEFAULTS,
    ROOFLINE,
    Constants,
    DoesNotFitError,
    KernelCost,
    LinearStepCost,
    NotCoveredError,
    RooflineStepCost,
    StepFeatures,
)
from course.serving.pricing.roofline import IDEAL, Load
from course.serving.workload import Workload

COVERED = [m for m in catalog.models() if not m.kv_latent_dim and not m.window_layers]
BIG = "B200-180GB-SXM"
STEPS = st.builds(
    StepFeatures,
    prefill_tokens=st.integers(0, 16_384),
    prefill_pairs=st.integers(0, 10**9),
    decode_seqs=st.integers(0, 1024),
    kv_tokens=st.integers(0, 10**7),
)
# (layers, kv_heads, head_dim, parameters), from the models' own configuration files
SHAPES = {
    "Llama-2-7B": (32, 32, 128, 6_738_415_616),
    "Llama-3.1-8B": (32, 8, 128, 8_030_261_248),
    "Llama-3.1-70B": (80, 8, 128, 70_553_706_496),
    "Qwen2.5-7B": (28, 4, 128, 7_615_616_512),
    "Qwen3-8B": (36, 8, 128, 8_190_735_360),
}


# --- bytes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kv_bytes"),
    [
        ("Llama-2-7B", 524_288),
        ("Llama-3.1-8B", 131_072),
        ("Llama-3.1-70B", 327_680),
        ("Qwen2.5-7B", 57_344),
        ("Qwen3-8B", 147_456),
    ],
)
def test_kv_bytes_of_known_models(name: str, kv_bytes: int) -> None:
    """Every claim about how many users fit rests on this number."""
    layers, kv_heads, head_dim, parameters = SHAPES[name]
    cost = RooflineStepCost(name, BIG)
    assert cost.kv_bytes_per_token == kv_bytes == 2 * layers * kv_heads * head_dim * 2
    assert cost.weight_bytes == 2 * parameters
    halved = RooflineStepCost(name, BIG, precision="fp8", kv_precision="fp8")
    assert 2 * halved.kv_bytes_per_token == kv_bytes
    assert halved.weight_bytes == parameters


@pytest.mark.parametrize("model", COVERED, ids=lambda m: m.name)
def test_bytes_of_every_model_follow_from_its_shape(model: catalog.Model) -> None:
    """A model's weights or cache are counted wrong, so that a card holds what it cannot hold."""
    cost = RooflineStepCost(model, BIG, n_gpus=4 if model.heads % 8 else 8)
    assert catalog.parameters_from_shape(model) == model.parameters
    assert cost.weight_bytes == 2 * model.parameters
    table = 0 if model.tied_embeddings else model.vocab * model.hidden
    assert cost.streamed_bytes == 2 * (model.parameters - table)
    copies = max(1, cost.n_gpus // model.kv_heads)
    per_token = 2 * model.layers * model.kv_heads * model.head_dim * 2
    assert cost.kv_bytes_per_token == per_token * copies


def test_cards_beyond_the_key_value_heads_keep_copies() -> None:
    """4 heads on 8 cards: a cache counted once would seat twice as many users as there is room."""
    split = replace(catalog.model("Qwen2.5-7B"), heads=32, kv_heads=4)
    four, eight = (RooflineStepCost(split, BIG, n_gpus=n) for n in (4, 8))
    assert eight.kv_bytes_per_token == 2 * four.kv_bytes_per_token


def test_kv_blocks_by_hand() -> None:
    cost = RooflineStepCost("Llama-3.1-70B", "H100-80GB-SXM", n_gpus=4, kv_precision="fp8")
    free = 4 * (0.9 * 85_469_849_190 - 2 * 2**30) - 2 * 70_553_706_496
    assert cost.kv_blocks() == int(free // (16 * 163_840))
    assert cost.kv_blocks(32, 0.8, 0.0) == int(
        (4 * 0.8 * 85_469_849_190 - 2 * 70_553_706_496) // (32 * 163_840)
    )
    for wrong, words in ((1.2, "above 1"), (0.0, "not above 0"), (math.nan, "NaN")):
        with pytest.raises(ValueError, match=f"memory_fraction=.*{words}"):
            cost.kv_blocks(memory_fraction=wrong)


def test_too_large_a_model_says_by_how_much_and_what_would_fit() -> None:
    """A reader who is told only that it does not fit has to guess what to buy."""
    with pytest.raises(DoesNotFitError) as error:
        RooflineStepCost("Llama-3.1-70B", "H100-80GB-SXM")
    short = (2 * 70_553_706_496 - 85_469_849_190) / 2**30
    assert f"are {short:.1f} GiB short" in str(error.value)
    assert "n_gpus=2 in bf16, or n_gpus=1 in fp8, or gpu='B200-180GB-SXM'" in str(error.value)
    for n_gpus, precision in ((2, "bf16"), (1, "fp8")):  # what it says fits, does
        RooflineStepCost("Llama-3.1-70B", "H100-80GB-SXM", n_gpus, precision).kv_blocks()
    tight = RooflineStepCost("Qwen3-32B", "H100-80GB-SXM")  # the weights do, a cache does not
    with pytest.raises(DoesNotFitError, match=r"GiB short; would fit: n_gpus=2 in bf16"):
        tight.kv_blocks(memory_fraction=0.75)
    with pytest.raises(DoesNotFitError, match="give a smaller model"):
        RooflineStepCost("Llama-3.1-405B", "T4", constants=DEFAULTS)


def test_the_sizes_in_the_error_add_up() -> None:
    """12.6 GiB of weights in 13.5 GiB "are 1.1 GiB short": the reader looks for the rest."""
    with pytest.raises(DoesNotFitError) as error:
        RooflineStepCost("Llama-2-7B", "T4").kv_blocks()
    sizes = re.search(
        r"([\d.]+) GiB of weights and ([\d.]+) GiB kept free in ([\d.]+) GiB of usable memory "
        r"\(a fraction of 0\.9\) are ([\d.]+) GiB short",
        str(error.value),
    )
    assert sizes
    weights, free, memory, short = map(float, sizes.groups())
    assert weights + free - memory == pytest.approx(short, abs=0.2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("Llama-3.1-8B", BIG, 1, "mxfp4"), "experts in 4 bits.*give 'nvfp4' or 'int4'"),
        (("Llama-3.1-8B", "H100-80GB-SXM", 1, "nvfp4"), "no unit on the H100.*never measured"),
    ],
)
def test_what_the_formula_does_not_count_is_refused(
    arguments: tuple[object, ...], words: str
) -> None:
    """A wrong figure for a model of another kind looks exactly like a right one."""
    with pytest.raises(NotCoveredError, match=words):
        RooflineStepCost(*arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"n_gpus": 0}, "n_gpus=0 is below 1"),
        ({"n_gpus": 1.5}, "n_gpus=1.5 is not whole"),
        ({"n_gpus": 3}, r"n_gpus=3 cannot share the 32 heads.*give one of \[1, 2, 4, 8, 16\]"),
        ({"precision": "fp4"}, "precision='fp4' is not covered.*several ways.*give one of bf16"),
        ({"precision": "bf17"}, "precision='bf17' is not covered; give one of"),
        ({"kv_precision": "int8"}, "kv_precision='int8' is not covered"),
        ({"model": "Lama-3.1-8B"}, "did you mean 'Llama-3.1-8B'"),
        ({"gpu": "H100"}, "gpu='H100' is not known"),
        ({"gpu": "A100-80GB-SXM", "precision": "fp8"}, "precision='fp8' has no unit on the A100"),
    ],
)
def test_wrong_arguments_are_named(keywords: dict[str, object], words: str) -> None:
    given_ = {"model": "Llama-3.1-8B", "gpu": "H100-80GB-SXM", **keywords}
    with pytest.raises(ValueError, match=words):
        RooflineStepCost(**given_)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", list(Constants.__dataclass_fields__))
def test_wrong_constants_are_named(name: str) -> None:
    for wrong in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=f"{name}="):
            replace(DEFAULTS, **{name: wrong})
    if name in ("mbu", "mfu_bf16", "mfu_fp8"):
        with pytest.raises(ValueError, match=f"{name}=1.01 is above 1"):
            replace(DEFAULTS, **{name: 1.01})


# --- seconds -----------------------------------------------------------------------------------


def test_a_step_by_hand() -> None:
    """The formula on the whiteboard and the code are not the same."""
    know = Constants(0.002, 1e-5, 0.8, 0.6, 0.5, 2e-5, 200e9)
    cost = RooflineStepCost("Llama-3.1-70B", "H100-80GB-SXM", 4, "fp8", constants=know)
    shape = catalog.model("Llama-3.1-70B")
    step = StepFeatures(prefill_tokens=1000, prefill_pairs=500_500, decode_seqs=24, kv_tokens=9000)
    streamed = 70_553_706_496 - 128_256 * 8192
    read_s = streamed / (4 * 0.8 * 3.35e12)
    compute_s = 2 * shape.active_parameters * 1024 / (4 * 0.5 * 1978e12)
    kv_s = 327_680 * 9000 / (4 * 0.8 * 3.35e12)
    pairs_s = 4 * 80 * 64 * 128 * 500_500 / (4 * 0.6 * 989e12)
    reduce_s = 2 * 80 * (2e-5 + 2 * 3 / 4 * 1024 * 8192 * 2 / 200e9)
    by_hand = 0.002 + 80e-5 + math.hypot(read_s, compute_s) + kv_s + pairs_s + reduce_s
    assert cost.step_seconds(step) == pytest.approx(by_hand, rel=1e-12)
    parts = cost.step_parts(step)
    assert parts.weights_s == pytest.approx(read_s)
    assert parts.compute_s == pytest.approx(compute_s)
    assert (
        parts.overhead_s + parts.dense_s + parts.kv_s + parts.attention_s + parts.all_reduce_s
    ) == pytest.approx(by_hand, rel=1e-12)


@given(
    step=STEPS,
    model=st.sampled_from(COVERED),
    gpu=st.sampled_from([BIG, "H200-141GB-SXM", "MI300X"]),
    precision=st.sampled_from(["bf16", "fp8"]),
    mbu=st.floats(0.01, 1.0),
    mfu=st.floats(0.01, 1.0),
)
def test_no_step_is_cheaper_than_reading_the_weights(
    step: StepFeatures, model: catalog.Model, gpu: str, precision: str, mbu: float, mfu: float
) -> None:
    """The smooth corner would promise what no memory can deliver."""
    know = replace(IDEAL, mbu=mbu, mfu_bf16=mfu, mfu_fp8=mfu)
    n_gpus = 4 if model.heads % 8 else 8
    cost = RooflineStepCost(model, gpu, n_gpus, precision, constants=know)
    assert cost.step_seconds(step) >= cost.weight_read_s
    idle = model.experts - model.experts_per_token
    unread = model.expert_parameters * idle // model.experts if model.is_moe else 0
    least = cost.streamed_bytes - unread * (1 if precision == "fp8" else 2)
    assert cost.weight_read_s == pytest.approx(
        least / n_gpus / catalog.gpu(gpu).bandwidth_bytes_per_s
    )
    parts = cost.step_parts(step)
    assert parts.dense_s >= max(parts.weights_s, parts.compute_s) * (1 - 1e-15)


@given(step=STEPS, more=STEPS)
def test_more_work_never_takes_less_time(step: StepFeatures, more: StepFeatures) -> None:
    cost = RooflineStepCost("Llama-3.1-8B", "H100-80GB-SXM", 2)
    both = StepFeatures(*(a + b for a, b in zip(step, more, strict=True)))
    assert cost.step_seconds(both) >= cost.step_seconds(step)


def test_ridge_batch_is_where_computing_costs_what_reading_costs() -> None:
    cost = RooflineStepCost("Llama-3.1-8B", "A100-80GB-SXM")
    parts = cost.step_parts(StepFeatures(0, 0, 1, 0))
    assert cost.ridge_batch * parts.compute_s == pytest.approx(parts.weights_s)
    ideal = RooflineStepCost("Llama-3.1-8B", "A100-80GB-SXM", constants=IDEAL)
    ridge = catalog.gpu("A100-80GB-SXM").ridge_flop_per_byte  # bf16: 2 bytes and 2 operations
    assert ideal.ridge_batch == pytest.approx(ridge, rel=1e-3)


def test_a_link_slower_than_the_constant_is_what_counts() -> None:
    """Tensor parallelism over PCIe would be priced like NVLink."""
    step = StepFeatures(4096, 0, 0, 0)
    over = {
        gpu: RooflineStepCost("Llama-3.1-8B", gpu, 2) for gpu in ("A100-80GB-PCIe", "A100-80GB-SXM")
    }
    tokens_s = {
        gpu: cost.step_parts(step).all_reduce_s - cost.step_parts(StepFeatures(0, 0, 0, 0))[-1]
        for gpu, cost in over.items()
    }
    ratio = tokens_s["A100-80GB-PCIe"] / tokens_s["A100-80GB-SXM"]
    assert ratio == pytest.approx(DEFAULTS.all_reduce_bytes_per_s / 32e9)
    assert not over["A100-80GB-PCIe"].is_covered
    assert over["A100-80GB-SXM"].is_covered


def test_a_mixture_of_experts_streams_more_than_it_computes_with() -> None:
    cost = RooflineStepCost("Qwen3-30B-A3B", "H200-141GB-SXM", constants=IDEAL)
    dense = RooflineStepCost("Qwen3-32B", "H200-141GB-SXM", constants=IDEAL)
    assert cost.ridge_batch > 5 * dense.ridge_batch
    assert not cost.is_covered
    assert dense.is_covered


# --- experts, windows, latents, four bits --------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 8, 64, 1000])
def test_a_step_reads_the_experts_that_its_sequences_touch(batch: int) -> None:
    """A mixture at a small batch would seem as slow as at a large one, and the floor be broken."""
    cost = RooflineStepCost("Qwen3-30B-A3B", "H200-141GB-SXM", load=Load(batch, 1000))
    experts = 48 * 128 * 3 * 2048 * 768
    other = 30_532_122_624 - 151_936 * 2048 - experts
    touched = 1 - (1 - 8 / 128) ** batch
    assert cost.streamed_bytes == pytest.approx(2 * (other + touched * experts), rel=1e-9)
    all_of_them = RooflineStepCost("Qwen3-30B-A3B", "H200-141GB-SXM")
    assert all_of_them.streamed_bytes == 2 * (other + experts)
    assert cost.weight_read_s == all_of_them.weight_read_s <= cost.step_parts(DECODE_1).weights_s


DECODE_1 = StepFeatures(0, 0, 1, 1000)


def test_a_window_reads_no_more_than_its_tokens() -> None:
    """gpt-oss at a long context would be as slow as if every layer looked at all of it."""
    short, long = (
        RooflineStepCost(
            "gpt-oss-120b", "B200-180GB-SXM", precision="mxfp4", load=Load(32, context)
        )
        for context in (100, 8000)
    )
    per_layer = 2 * 8 * 64 * 2 / (DEFAULTS.mbu * 8e12)
    step = StepFeatures(0, 0, 32, 32 * 8000)
    assert short.step_parts(step).kv_s == pytest.approx(36 * 32 * 8000 * per_layer)
    assert long.step_parts(step).kv_s == pytest.approx(18 * 32 * (8000 + 128) * per_layer)
    # and the pool holds nearly twice as much
    assert 1.9 < long.kv_blocks() / short.kv_blocks() < 2
    prefill = StepFeatures(8000, 8000 * 8001 // 2, 0, 0)
    whole, window = (cost.step_parts(prefill).attention_s for cost in (short, long))
    assert window == pytest.approx(whole / 2 * (1 + 128 / 4000.5))


def test_a_latent_is_kept_on_every_card_and_read_by_all_heads() -> None:
    one, two = (RooflineStepCost("DeepSeek-V3", "MI300X", n, "fp8") for n in (4, 8))
    assert one.kv_bytes_per_token == 4 * 61 * (512 + 64) * 2
    assert two.kv_bytes_per_token == 2 * one.kv_bytes_per_token
    card = catalog.gpu("MI300X")
    read_s = 61 * 576 * 2 / (DEFAULTS.mbu * card.bandwidth_bytes_per_s)
    flop = 2 * 61 * 128 * (576 + 512) / 8
    compute_s = flop / (DEFAULTS.mfu_bf16 * card.peak_bf16_flop_per_s)
    assert two.step_parts(StepFeatures(0, 0, 1, 1)).kv_s == pytest.approx(
        math.hypot(read_s, compute_s)
    )
    assert not two.is_covered


def test_four_bits_by_hand() -> None:
    """A checkpoint in 4 bits would fit where it does not, or be read twice as fast as it is."""
    llama, matrices = catalog.model("Llama-3.1-70B"), 70_553_706_496 - 2 * 128_256 * 8192
    nvfp4 = RooflineStepCost(llama, BIG, precision="nvfp4")
    assert nvfp4.weight_bytes == matrices * 4.5 / 8 + 2 * 128_256 * 8192 * 2
    assert nvfp4.streamed_bytes == matrices * 4.5 / 8 + 128_256 * 8192 * 2
    token = nvfp4.step_parts(StepFeatures(0, 0, 1, 0)).compute_s
    assert token == pytest.approx(
        2 * llama.active_parameters / (catalog.gpu(BIG).peak_fp4_flop_per_s or 1) / DEFAULTS.mfu_fp4
    )
    oss = RooflineStepCost("gpt-oss-120b", BIG, precision="mxfp4")
    assert oss.weight_bytes / 2**30 == pytest.approx(60.8, abs=0.1)
    old, new = (
        RooflineStepCost("gpt-oss-20b", gpu, precision="mxfp4") for gpu in ("H200-141GB-SXM", BIG)
    )
    by_unpacking = DEFAULTS.unpack_per_layer_s * 24
    assert old.step_parts(DECODE_1).overhead_s - new.step_parts(DECODE_1).overhead_s == (
        pytest.approx(by_unpacking)
    )
    awq = RooflineStepCost("Llama-3.1-8B", "RTX-4090", precision="int4")
    bf16 = RooflineStepCost("Llama-3.1-8B", "RTX-4090")
    assert awq.step_parts(DECODE_1).compute_s == bf16.step_parts(DECODE_1).compute_s
    assert 0.25 < awq.streamed_bytes / bf16.streamed_bytes < 0.4


def test_static_scales_compute_faster_and_read_the_same() -> None:
    static, dynamic = (
        RooflineStepCost("Llama-3.1-8B", "H100-80GB-SXM", precision=p)
        for p in ("fp8-static", "fp8")
    )
    assert static.streamed_bytes == dynamic.streamed_bytes
    ratio = dynamic._prices[6] / static._prices[6]
    assert ratio == pytest.approx(DEFAULTS.mfu_fp8_static / DEFAULTS.mfu_fp8)


def test_load_is_checked() -> None:
    with pytest.raises(ValueError, match="decode_seqs=0 is not above 0"):
        Load(0, 100)
    with pytest.raises(ValueError, match="load=16 is no Load"):
        RooflineStepCost("Llama-3.1-8B", "L40S", load=16)  # type: ignore[arg-type]


# --- in the engine -----------------------------------------------------------------------------


@pytest.mark.parametrize("chunked", [True, False])
def test_compiled_and_plain_runs_agree_bit_for_bit(chunked: bool) -> None:
    """A student's own policy, which runs uncompiled, would meet another server."""
    rng = np.random.default_rng(5)
    work = Workload(
        np.sort(rng.uniform(0, 3, 60)), rng.integers(1, 2000, 60), rng.integers(1, 80, 60)
    )
    cost = RooflineStepCost("Llama-3.1-70B", "H100-80GB-SXM", 4)
    config = EngineConfig(
        max_num_seqs=16,
        max_num_batched_tokens=2048,
        enable_chunked_prefill=chunked,
        num_kv_blocks=600,
    )
    fast, plain = (simulate(work, cost, config, compiled=c) for c in (True, False))
    own = simulate(work, _Wrapped(cost), config)
    assert fast.step_end_s.tolist() == plain.step_end_s.tolist() == own.step_end_s.tolist()
    assert fast.preemptions.sum() > 0


class _Wrapped:
    """A cost of a caller's own, without a formula for the compiled loops."""

    def __init__(self, cost: RooflineStepCost) -> None:
        self._cost = cost

    def step_seconds(self, features: StepFeatures, /) -> float:
        return self._cost.step_seconds(features)


@given(step=STEPS)
def test_the_loops_price_a_step_as_the_cost_does(step: StepFeatures) -> None:
    from course.serving.engine.kernels import steps as _kernels

    for cost in (
        RooflineStepCost("Qwen3-8B", "H100-80GB-SXM", 2, "fp8"),
        LinearStepCost(0.01, 3e-5, 1e-9, 1e-4, 2e-8),
    ):
        code, coefficients = cost.kernel_form()
        price = coefficients + (0.0,) * (8 - len(coefficients))
        assert _kernels.step_seconds(code, price, *step) == cost.step_seconds(step)


@pytest.mark.parametrize(
    "form", [KernelCost(7, (1.0,)), KernelCost(ROOFLINE, (1.0,) * 5), KernelCost(0, ())]
)
def test_a_formula_that_the_loops_do_not_know_is_refused(form: KernelCost) -> None:
    """It would be priced by another formula without a word."""

    class Own:
        def step_seconds(self, features: StepFeatures, /) -> float:
            return 1.0

        def kernel_form(self) -> KernelCost:
            return form

    with pytest.raises(ValueError, match="which the loops do not know"):
        simulate(Workload([0.0], [4], [2]), Own())
    assert COEFFICIENTS[ROOFLINE] == 8


# --- money -------------------------------------------------------------------------------------


def test_money_by_hand() -> None:
    price = catalog.prices("H100-80GB-SXM")[0]
    cost = RooflineStepCost("Llama-3.1-70B", "H100-80GB-SXM", 4)
    hour = 4 * price.usd_per_gpu_hour
    assert cost.usd_per_hour(price) == pytest.approx(hour)
    assert cost.usd_per_million_output_tokens(price, 2000) == pytest.approx(hour / 7.2)
    assert cost.usd_per_success(price, 0.5) == pytest.approx(hour / 1800)
    assert cost.usd_per_hour(0) == 0.0
    with pytest.raises(ValueError, match="price=-1 is negative"):
        cost.usd_per_hour(-1)
    with pytest.raises(ValueError, match="output_tokens_per_s=0 is not above 0"):
        cost.usd_per_million_output_tokens(2.0, 0)
    with pytest.raises(ValueError, match="successes_per_s=0 is not above 0"):
        cost.usd_per_success(2.0, 0)
