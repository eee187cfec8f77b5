"""The figures in data/ and the functions that hand them out.

Each test says what would be wrong in the world if it failed.
"""

from __future__ import annotations

import csv
import math
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from course.serving import catalog
from course.serving.catalog.tables import DATA, read_rows

TABLES = sorted(path.relative_to(DATA).as_posix() for path in DATA.rglob("*.csv"))
FREE_TEXT_SOURCE = {"gpus.csv", "models.csv", "prices.csv"}

# columns of numbers that need no unit: counts, ratios and plain shapes
UNITLESS = {
    "error",
    "pct",
    "ks",
    "shape",
    "weight_1",
    "mu_1",
    "sigma_1",
    "mu_2",
    "sigma_2",
    "requests",
    "request",
    "n_gpus",
    "tensor_parallel",
    "concurrency",
    "shortest_share",
    "requests_per_user",
    "points",
    "throughput_median",
    "throughput_p90",
    "tpot_median",
    "ttft_median",
    "max_num_seqs",
    "num_kv_blocks",
    "block_size",
    "max_num_batched_tokens",
    "sequences",
    "minute",
    "arrivals",
    "windows",
    "gap_cv",
    "simultaneous_share",
    "lag1_autocorrelation",
    "gamma_shape",
    "gamma_ks",
    "weibull_shape",
    "weibull_ks",
    "exponential_ks",
    "prompt_output_spearman",
    "value",  # of a constant, whose unit is in its name
    "deviation",
}
UNIT = re.compile(r"(^|_)(s|w|usd|bytes|tokens|users|per_s|per_gpu_hour)$")
WINDOWED = re.compile(r"^(dispersion|peak_to_mean)_\d+s$")

ONLY_MEASURED_GPUS = {
    "Apple-M1-7c",
    "Apple-M1-Max-32c",
    "Arc-Pro-B60",
    "RTX-3070",
    "RTX-3080",
    "RTX-4000-Ada",
    "RTX-4070-Ti",
    "RTX-5000-Ada",
}
ONLY_MEASURED_MODELS = {"Nemotron-Nano-30B", "InternLM-20B"}

BYTES_PER_PARAMETER = {
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "fp4": 0.5,
    "q4_k_m": 0.5,
    "bnb-4bit": 0.5,
}


def cells(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


# --- every file ------------------------------------------------------------------------------


def test_tables_are_all_there() -> None:
    """A table that is deleted, or a new one that no test looks at, goes unnoticed."""
    assert TABLES == [
        "gpus.csv",
        "iteration_times.csv",
        "knees.csv",
        "models.csv",
        "prices.csv",
        "serving_points.csv",
        "sources.csv",
        "traces/arrival_statistics.csv",
        "traces/arrivals_per_minute.csv",
        "traces/gap_quantiles.csv",
        "traces/length_fits.csv",
        "traces/length_quantiles.csv",
        "traces/length_statistics.csv",
        "traces/window_counts.csv",
        "validation/constants.csv",
        "validation/iteration_times.csv",
        "validation/left_out.csv",
        "validation/serving_points.csv",
        "vllm_logs/index.csv",
        "vllm_logs/replayed.csv",
        "vllm_logs/rtx-4090.csv",
        "vllm_logs/rtx-pro-6000.csv",
    ]


@pytest.mark.parametrize("name", TABLES)
def test_table_is_well_formed(name: str) -> None:
    """A cell says NaN or inf, or a row lacks its source or is there twice."""
    rows = cells(name)
    assert rows
    for number, row in enumerate(rows, start=2):
        assert None not in row, f"line {number} has too many cells"
        assert row["source"].strip(), f"line {number} has no source"
        for column, cell in row.items():
            assert cell is not None, f"line {number} has too few cells"
            assert cell == cell.strip(), f"line {number}, {column}: spaces around the cell"
            assert cell.lower() not in {"nan", "inf", "none", "null", "n/a", "?"}, (number, column)
    twice = [row for row, count in Counter(tuple(r.values()) for r in rows).items() if count > 1]
    assert not twice


@pytest.mark.parametrize("name", sorted(set(TABLES) - {"models.csv", "sources.csv"}))
def test_numbers_have_units_in_their_column(name: str) -> None:
    """A student reads milliseconds as seconds, because the column does not say."""
    rows = cells(name)
    for column in rows[0]:
        filled = [row[column] for row in rows if row[column]]
        if filled and all(map(is_number, filled)) and column != "note":
            assert column in UNITLESS or UNIT.search(column) or WINDOWED.match(column), column


@pytest.mark.parametrize("name", sorted(set(TABLES) - FREE_TEXT_SOURCE - {"sources.csv"}))
def test_sources_are_explained(name: str) -> None:
    """A figure cannot be traced to its origin and licence."""
    for row in cells(name):
        assert catalog.source(row["source"]).licence


def test_each_explained_source_is_used() -> None:
    """A source stays on the list after its figures have gone."""
    used = {
        row["source"]
        for name in TABLES
        if name not in FREE_TEXT_SOURCE | {"sources.csv"}
        for row in cells(name)
    }
    assert {source.source for source in catalog.sources()} == used


def test_readme_names_every_file_and_uncatalogued_name() -> None:
    """A reader of data/ meets a file or a name that its README does not mention."""
    readme = (DATA / "README.md").read_text(encoding="utf-8")
    for name in TABLES:
        stem = "vllm_logs/" if name.startswith("vllm_logs/") else name.split("/")[-1]
        assert stem in readme, name
    for name in ONLY_MEASURED_MODELS | ONLY_MEASURED_GPUS:
        assert name in readme, name


def test_readme_counts_the_rows() -> None:
    """The README promises another number of rows than the tables have."""
    readme = (DATA / "README.md").read_text(encoding="utf-8")
    for name in ("gpus", "models", "prices", "serving_points", "iteration_times", "sources"):
        (stated,) = re.findall(rf"^\| `{name}\.csv` \| ([\d,]+) \|", readme, re.MULTILINE)
        assert int(stated.replace(",", "")) == len(cells(f"{name}.csv")), name


def test_tables_stay_small() -> None:
    """A clone drags megabytes of figures that nobody curated."""
    assert (DATA / "serving_points.csv").stat().st_size < 400_000
    assert sum((DATA / name).stat().st_size for name in TABLES) < 650_000


# --- names -----------------------------------------------------------------------------------


def test_names_are_found_whatever_the_capitals() -> None:
    """A student who types h100-80gb-sxm is sent away."""
    assert catalog.gpu("h100-80gb-sxm") is catalog.gpu("H100-80GB-SXM")
    assert catalog.model("llama-3.1-8b").name == "Llama-3.1-8B"
    assert catalog.length_statistics("Azure-2023-Code", "Prompt").trace == "azure-2023-code"


@pytest.mark.parametrize(
    ("ask", "wrong", "suggested"),
    [
        (catalog.gpu, "H100", "'H100-80GB-PCIe' or 'H100-80GB-SXM'"),
        (catalog.gpu, "4090", "'RTX-4090'"),
        (catalog.gpu, "A100-80GB-SMX", "'A100-80GB-SXM'"),
        (catalog.model, "Llama3.1-8B", "'Llama-3.1-8B'"),
        (catalog.model, "Qwen-3-8B", "'Qwen3-8B'"),
        (catalog.prices, "H200", "'H200-141GB-SXM'"),
        (catalog.source, "silibench", "'silybench'"),
        (catalog.arrival_statistics, "azure-code", "'azure-2023-code'"),
        (catalog.vllm_log, "4090", "'rtx-4090'"),
    ],
)
def test_typo_gets_a_suggestion(ask: object, wrong: str, suggested: str) -> None:
    """A student who mistypes a name has to read the source to find the right one."""
    with pytest.raises(catalog.UnknownNameError) as caught:
        ask(wrong)  # type: ignore[operator]
    message = str(caught.value)
    assert f"{wrong!r} is not known" in message
    assert "did you mean" in message
    assert suggested in message
    assert "Known: " in message


@pytest.mark.parametrize("wrong", ["", "zzzzzz", None])
def test_hopeless_name_gets_the_list_alone(wrong: object) -> None:
    """A name that is like nothing gets a silly guess, or a traceback from inside."""
    with pytest.raises(catalog.UnknownNameError) as caught:
        catalog.gpu(wrong)  # type: ignore[arg-type]
    message = str(caught.value)
    assert "did you mean" not in message
    assert all(card.name in message for card in catalog.gpus())


def test_unknown_name_is_both_a_value_and_a_lookup_error() -> None:
    """Code that catches ValueError (the house rule) or LookupError misses an unknown name."""
    assert issubclass(catalog.UnknownNameError, ValueError)
    assert issubclass(catalog.UnknownNameError, LookupError)


def test_everything_public_is_importable() -> None:
    """`from course.serving.catalog import *` fails."""
    for name in catalog.__all__:
        assert hasattr(catalog, name), name
    assert sorted(catalog.__all__) == catalog.__all__


# --- GPUs ------------------------------------------------------------------------------------

HAND_CHECKED_RIDGES = {
    "T4": 203.1,
    "L4": 403.3,
    "A10": 208.3,
    "A10G": 116.7,
    "A100-40GB-SXM": 200.6,
    "A100-80GB-SXM": 153.0,
    "L40S": 419.0,
    "H100-80GB-PCIe": 378.2,
    "H100-80GB-SXM": 295.2,
    "H200-141GB-SXM": 206.0,
    "H100-94GB-NVL": 212.2,
    "GH200-96GB": 247.2,
    "GH200-144GB": 201.8,
    "B200-180GB-SXM": 281.2,
    "GB200-186GB": 312.5,
    "RTX-3090": 75.8,
    "RTX-4080": 136.0,
    "RTX-A6000": 201.6,
    "RTX-6000-Ada": 379.4,
    "MI300X": 246.7,
    "RTX-4090": 163.9,
    "RTX-PRO-6000-Server": 261.0,
    "Apple-M3-Max-40c": 71.0,
    "Apple-M2-Ultra-76c": 34.0,
    "Laptop-CPU-DDR5-5600-2ch": 15.6,
}


@pytest.mark.parametrize(("name", "ridge"), HAND_CHECKED_RIDGES.items())
def test_ridge_is_the_hand_checked_one(name: str, ridge: float) -> None:
    """A peak or a bandwidth slipped by a power of ten, or the sparse peak crept in."""
    assert catalog.gpu(name).ridge_flop_per_byte == pytest.approx(ridge, abs=0.051)


def test_cards_for_measurements_are_there() -> None:
    """Step times on the A40 cannot be predicted, because the catalogue lacks the card."""
    assert catalog.gpu("A40").bandwidth_bytes_per_s == 696e9
    assert catalog.gpu("A100-80GB-PCIe").bandwidth_bytes_per_s == 1935e9
    assert len(catalog.gpus()) == len(HAND_CHECKED_RIDGES) + 2


@pytest.mark.parametrize("card", catalog.gpus(), ids=lambda card: card.name)
def test_card_is_physically_sensible(card: catalog.Gpu) -> None:
    """A card has more usable memory than it has memory, or gains nothing from fewer bits."""
    assert 0.7 * card.memory_nameplate_bytes <= card.memory_bytes <= card.memory_nameplate_bytes
    assert 5e10 < card.bandwidth_bytes_per_s <= 8e12
    assert 1e12 < card.peak_bf16_flop_per_s < 3e15
    if card.peak_fp8_flop_per_s is not None:
        assert card.peak_fp8_flop_per_s == pytest.approx(2 * card.peak_bf16_flop_per_s, rel=0.03)
    if card.peak_fp4_flop_per_s is not None:
        assert card.peak_fp4_flop_per_s == pytest.approx(4 * card.peak_bf16_flop_per_s, rel=0.03)
    if card.link_bytes_per_s is not None:
        assert card.link_bytes_per_s < card.bandwidth_bytes_per_s


def test_exact_memory_of_the_rtx_4090() -> None:
    """The logged 2,588 KV blocks cannot be explained from the card's memory."""
    assert catalog.gpu("RTX-4090").memory_bytes == 25_250_627_584


def test_peak_by_precision() -> None:
    """fp16 and bf16 differ, or a card computes in a precision that it has no unit for."""
    card = catalog.gpu("B200-180GB-SXM")
    assert [card.peak_flop_per_s(p) / 1e12 for p in ("bf16", "fp16", "fp8", "fp4")] == [
        2250,
        2250,
        4500,
        9000,
    ]
    with pytest.raises(ValueError, match=r"precision='fp8' has no unit on the A100-80GB-SXM"):
        catalog.gpu("A100-80GB-SXM").peak_flop_per_s("fp8")
    with pytest.raises(ValueError, match=r"give one of \['bf16', 'fp16', 'fp8', 'fp4'\]"):
        card.peak_flop_per_s("int3")


# --- models ----------------------------------------------------------------------------------

KV_BYTES_PER_TOKEN = {
    "Llama-2-7B": 524_288,
    "Llama-2-13B": 819_200,
    "Llama-2-70B": 327_680,
    "Llama-3.1-8B": 131_072,
    "Llama-3.1-70B": 327_680,
    "Llama-3.1-405B": 516_096,
    "Qwen2.5-7B": 57_344,
    "Qwen2.5-32B": 262_144,
    "Qwen2.5-72B": 327_680,
    "Qwen3-8B": 147_456,
    "Qwen3-32B": 262_144,
    "Qwen3-30B-A3B": 98_304,
    "Mistral-7B": 131_072,
    "Mixtral-8x7B": 131_072,
    "gpt-oss-20b": 49_152,
    "gpt-oss-120b": 73_728,
    "DeepSeek-V3": 70_272,
    "Gemma-3-12B": 393_216,
    "Gemma-3-27B": 507_904,
    "Llama-4-Scout": 196_608,
    "Llama-4-Maverick": 196_608,
}
PUBLISHED_PARAMETERS = {
    "Llama-2-7B": 6_738_415_616,
    "Llama-2-13B": 13_015_864_320,
    "Llama-2-70B": 68_976_648_192,
    "Llama-3.1-8B": 8_030_261_248,
    "Llama-3.1-70B": 70_553_706_496,
    "Llama-3.1-405B": 405_853_388_800,
    "Qwen2.5-7B": 7_615_616_512,
    "Qwen2.5-32B": 32_763_876_352,
    "Qwen2.5-72B": 72_706_203_648,
    "Qwen3-8B": 8_190_735_360,
    "Qwen3-32B": 32_762_123_264,
    "Qwen3-30B-A3B": 30_532_122_624,
    "Mistral-7B": 7_241_732_096,
    "Mixtral-8x7B": 46_702_792_704,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "DeepSeek-V3": 671_026_419_200,
    "Gemma-3-12B": 11_766_034_176,
    "Gemma-3-27B": 27_009_346_304,
    "Llama-4-Scout": 107_769_861_120,
    "Llama-4-Maverick": 400_711_848_960,
}
ACTIVE_PARAMETERS = {
    "Llama-2-7B": 6_607_343_616,
    "Llama-3.1-8B": 7_504_924_672,
    "Qwen3-30B-A3B": 3_041_867_776,
    "Mixtral-8x7B": 12_748_853_248,
    "gpt-oss-20b": 3_608_307_264,
    "gpt-oss-120b": 5_132_849_472,
    "DeepSeek-V3": 36_625_618_432,
}


@pytest.mark.parametrize("shape", catalog.models(), ids=lambda shape: shape.name)
def test_published_parameters_follow_from_the_shape(shape: catalog.Model) -> None:
    """A shape in the table is wrong, or the count that students learn misses a matrix."""
    assert shape.parameters == PUBLISHED_PARAMETERS[shape.name]
    assert catalog.parameters_from_shape(shape) == shape.parameters


@pytest.mark.parametrize("shape", catalog.models(), ids=lambda shape: shape.name)
def test_kv_bytes_per_token(shape: catalog.Model) -> None:
    """Every capacity, batch and cost in the course is off by the same factor."""
    assert shape.kv_bytes_per_token() == KV_BYTES_PER_TOKEN[shape.name]
    assert shape.kv_bytes_per_token(1) == KV_BYTES_PER_TOKEN[shape.name] / 2


# layers, hidden size, heads, key/value heads, head size, experts, experts a token, as config.json
# prints them (num_hidden_layers, hidden_size, num_attention_heads, num_key_value_heads, head_dim,
# num_local_experts or n_routed_experts, num_experts_per_tok), and layers with a window, its tokens
CONFIGS = {
    "Llama-2-7B": (32, 4096, 32, 32, 128, 0, 0, 0, 0),
    "Llama-2-13B": (40, 5120, 40, 40, 128, 0, 0, 0, 0),
    "Llama-2-70B": (80, 8192, 64, 8, 128, 0, 0, 0, 0),
    "Llama-3.1-8B": (32, 4096, 32, 8, 128, 0, 0, 0, 0),
    "Llama-3.1-70B": (80, 8192, 64, 8, 128, 0, 0, 0, 0),
    "Llama-3.1-405B": (126, 16384, 128, 8, 128, 0, 0, 0, 0),
    "Qwen2.5-7B": (28, 3584, 28, 4, 128, 0, 0, 0, 0),
    "Qwen2.5-32B": (64, 5120, 40, 8, 128, 0, 0, 0, 0),
    "Qwen2.5-72B": (80, 8192, 64, 8, 128, 0, 0, 0, 0),
    "Qwen3-8B": (36, 4096, 32, 8, 128, 0, 0, 0, 0),
    "Qwen3-32B": (64, 5120, 64, 8, 128, 0, 0, 0, 0),
    "Qwen3-30B-A3B": (48, 2048, 32, 4, 128, 128, 8, 0, 0),
    "Mistral-7B": (32, 4096, 32, 8, 128, 0, 0, 0, 0),
    "Mixtral-8x7B": (32, 4096, 32, 8, 128, 8, 2, 0, 0),
    "gpt-oss-20b": (24, 2880, 64, 8, 64, 32, 4, 12, 128),
    "gpt-oss-120b": (36, 2880, 64, 8, 64, 128, 4, 18, 128),
    "DeepSeek-V3": (61, 7168, 128, 0, 128, 256, 8, 0, 0),
    "Gemma-3-12B": (48, 3840, 16, 8, 256, 0, 0, 40, 1024),
    "Gemma-3-27B": (62, 5376, 32, 16, 128, 0, 0, 52, 1024),
    "Llama-4-Scout": (48, 5120, 40, 8, 128, 16, 1, 36, 8192),
    "Llama-4-Maverick": (48, 5120, 40, 8, 128, 128, 1, 36, 8192),
}


@pytest.mark.parametrize("shape", catalog.models(), ids=lambda shape: shape.name)
def test_shape_is_that_of_the_public_config(shape: catalog.Model) -> None:
    """Two wrong columns could cancel in the count of parameters, and the cache would be wrong."""
    assert CONFIGS[shape.name] == (
        shape.layers,
        shape.hidden,
        shape.heads,
        shape.kv_heads,
        shape.head_dim,
        shape.experts,
        shape.experts_per_token,
        shape.window_layers,
        shape.window_tokens,
    )


def test_a_window_keeps_only_its_own_tokens() -> None:
    """A long context of Gemma 3 seems to need six times the memory that it needs."""
    gemma = catalog.model("Gemma-3-27B")
    per_layer = 2 * 16 * 128 * 2
    assert gemma.kv_bytes(1000) == 62 * 1000 * per_layer
    assert gemma.kv_bytes(101_024) == (10 * 101_024 + 52 * 1024) * per_layer
    assert catalog.model("Qwen3-8B").kv_bytes(777) == 777 * 147_456
    with pytest.raises(ValueError, match="context_tokens=-1 is no length"):
        gemma.kv_bytes(-1)


def test_experts_touched_by_drawing() -> None:
    """A small batch would seem to read all experts, and a mixture would never be fast."""
    shape = catalog.model("Qwen3-30B-A3B")
    rng = np.random.default_rng(0)
    for tokens in (1, 8, 64):
        drawn = [
            len({e for _ in range(tokens) for e in rng.permutation(128)[:8].tolist()}) / 128
            for _ in range(200)
        ]
        assert shape.experts_touched(tokens) == pytest.approx(np.mean(drawn), abs=0.01)
    assert shape.experts_touched(0) == 0
    assert catalog.model("Qwen3-8B").experts_touched(1) == 1
    matrices = 48 * 128 * 3 * 2048 * 768
    assert shape.expert_parameters == matrices
    with pytest.raises(ValueError, match="tokens=-1 is no number"):
        shape.experts_touched(-1)


@pytest.mark.parametrize(("name", "active"), ACTIVE_PARAMETERS.items())
def test_active_parameters(name: str, active: int) -> None:
    """A mixture of experts computes with all its experts, or a dense model with fewer."""
    assert catalog.model(name).active_parameters == active


def test_streamed_parameters_leave_out_the_embedding_table_only() -> None:
    """The roofline's floor includes bytes that a step never reads, or misses the output head."""
    llama = catalog.model("Llama-3.1-8B")
    assert llama.embedding_parameters == 128_256 * 4096
    assert llama.streamed_parameters * 2 == 15_009_849_344
    assert catalog.model("DeepSeek-V3").streamed_parameters * 2 == 1_340_199_480_320
    assert catalog.model("gpt-oss-120b").streamed_parameters * 2 == 232_500_046_464


def test_tied_embeddings_are_read_as_the_output_head() -> None:
    """A model that ties its embeddings seems to have no output head to read."""
    llama = catalog.model("Llama-3.1-8B")
    values = {field: getattr(llama, field) for field in catalog.Model.__dataclass_fields__}
    tied = catalog.Model(
        **values
        | {
            "tied_embeddings": True,
            "parameters": llama.parameters - llama.embedding_parameters,
        }
    )
    assert catalog.parameters_from_shape(tied) == tied.parameters
    assert tied.streamed_parameters == tied.parameters == llama.streamed_parameters


def test_mixtures_of_experts_are_told_apart() -> None:
    """The cost model claims accuracy for a model outside its claim."""
    assert {shape.name for shape in catalog.models() if shape.is_moe} == {
        "Qwen3-30B-A3B",
        "Mixtral-8x7B",
        "gpt-oss-20b",
        "gpt-oss-120b",
        "DeepSeek-V3",
        "Llama-4-Scout",
        "Llama-4-Maverick",
    }
    for shape in catalog.models():
        assert (shape.dense_layers == shape.layers) != shape.is_moe


def test_weight_bytes() -> None:
    """A model seems to fit a card that it does not fit."""
    assert catalog.model("Llama-3.1-70B").weight_bytes() / 2**30 == pytest.approx(131.42, abs=5e-3)
    assert catalog.model("Llama-3.1-70B").weight_bytes(1) / 2**30 == pytest.approx(65.71, abs=5e-3)
    mxfp4 = 4.25 / 8
    assert catalog.model("gpt-oss-20b").weight_bytes(2, mxfp4) == 13_761_264_768
    assert catalog.model("gpt-oss-120b").weight_bytes(2, mxfp4) / 2**30 == pytest.approx(
        60.8, abs=0.05
    )
    assert catalog.model("Qwen3-8B").weight_bytes(2, 1) == catalog.model("Qwen3-8B").weight_bytes()


@pytest.mark.parametrize("wrong", [0, -1, math.nan, math.inf])
def test_bytes_must_be_above_zero(wrong: float) -> None:
    """A cache of 0 bytes a token lets every sequence fit."""
    llama = catalog.model("Llama-3.1-8B")
    with pytest.raises(ValueError, match=r"bytes_per_value=.* is not above 0; give"):
        llama.kv_bytes_per_token(wrong)
    with pytest.raises(ValueError, match=r"bytes_per_parameter=.* is not above 0; give"):
        llama.weight_bytes(wrong)
    with pytest.raises(ValueError, match=r"expert_bytes_per_parameter=.* is not above 0; give"):
        llama.weight_bytes(2, wrong)


def test_attention_flop_per_pair() -> None:
    """Long prompts cost too little or too much: 4 · layers · heads · head_dim."""
    assert catalog.model("Llama-3.1-8B").attention_flop_per_pair == 4 * 32 * 32 * 128
    assert catalog.model("Llama-3.1-405B").attention_flop_per_pair == 8_257_536
    assert catalog.model("DeepSeek-V3").attention_flop_per_pair == 4_997_120


def test_models_of_the_same_shape_share_an_entry() -> None:
    """A sweep of Llama 3.3 finds no shape to be simulated with."""
    for twin, name in {
        "Llama-3.3-70B": "Llama-3.1-70B",
        "Llama-3-70B": "Llama-3.1-70B",
        "Llama-3-8B": "Llama-3.1-8B",
        "LLaMA-7B": "Llama-2-7B",
        "LLaMA-70B": "Llama-2-70B",
    }.items():
        assert catalog.model(twin).name == name
    names = [shape.name for shape in catalog.models()]
    twins = [twin for shape in catalog.models() for twin in shape.same_shape]
    assert len(set(names + twins)) == len(names) + len(twins)


# --- prices ----------------------------------------------------------------------------------


def test_prices_span_a_factor_of_five() -> None:
    """The lesson that a cost without seller and date says nothing has no figures."""
    asked = [price.usd_per_gpu_hour for price in catalog.prices("H100-80GB-SXM")]
    assert len(asked) == 13
    assert (min(asked), max(asked)) == (2.4024, 12.29)
    assert max(asked) / min(asked) == pytest.approx(5.1, abs=0.05)
    assert asked == sorted(asked)


def test_prices_name_card_seller_and_day() -> None:
    """A price cannot be looked up again."""
    for price in catalog.prices():
        catalog.gpu(price.gpu)
        assert price.seller
        assert price.offer
        assert 0.3 < price.usd_per_gpu_hour < 15
        if price.checked_on is None:
            assert price.note, price
        else:
            assert date(2026, 8, 1) <= price.checked_on <= date(2026, 12, 31)


def test_card_without_price_has_none() -> None:
    """A card that nobody rents out raises, or costs nothing."""
    assert catalog.prices("A40") == ()
    assert sum(len(catalog.prices(card.name)) for card in catalog.gpus()) == len(catalog.prices())


def test_spot_checked_prices() -> None:
    """A seller's price went to another card."""
    found = {(p.gpu, p.seller, p.offer): p.usd_per_gpu_hour for p in catalog.prices()}
    assert found["A10G", "AWS", "g5.xlarge"] == 1.006
    assert found["B200-180GB-SXM", "Lambda", "1x"] == 6.99
    assert found["RTX-4090", "RunPod", "Community Cloud"] == 0.34
    assert found["H100-80GB-SXM", "Azure", "ND96isr H100 v5, an eighth"] == 12.29


# --- measured points -------------------------------------------------------------------------


def test_points_by_source() -> None:
    """A source lost rows on its way, or the copies that are no measurements came back."""
    points = catalog.measured_points()
    assert len(points) == 1158
    assert Counter(point.source for point in points) == {
        "aiconfigurator-inferencex": 372,
        "aiconfigurator-gap": 205,
        "tensorrt-llm-0.17": 124,
        "llama.cpp-bench": 114,
        "silybench": 77,
        "tensorrt-llm-1.0": 70,
        "mlperf-4.1": 56,
        "splitwise-sim": 38,
        "nim-1.5": 28,
        "inference-perf-kubecon": 28,
        "tensorrt-llm-0.5": 18,
        "vultr-cookbook": 9,
        "tensorrt-llm-0.14": 8,
        "arc-pro-b-blog": 6,
        "llmservingsim": 3,
        "lmdeploy": 2,
    }


def test_knee_sweep_of_two_h100_is_findable() -> None:
    """Notebook 06 has no clean knee: 2 GPUs, Llama-3.3-70B, 5000 in, 500 out."""
    sweep = catalog.measured_points(
        "H100-80GB-SXM",
        "Llama-3.3-70B",
        n_gpus=2,
        prompt_tokens=5000,
        output_tokens=500,
        kind="sweep",
    )
    assert [p.concurrency for p in sweep] == [1, 5, 25, 50, 100, 150, 200]
    assert [p.output_tokens_per_s for p in sweep] == [
        48.44,
        199.17,
        564.5,
        738.78,
        777.31,
        777.94,
        777.02,
    ]
    assert sweep[-1].ttft_s == 73.3266
    assert {p.ttft_stat for p in sweep} == {"mean"}
    assert {p.throughput_is for p in sweep} == {"recorded"}


def test_qwen_sweeps_on_one_h100_are_findable() -> None:
    """The sweeps with power, tails and a known KV pool cannot be drawn."""
    points = catalog.measured_points("H100-80GB-SXM", "Qwen3-8B", source="silybench")
    shapes = Counter((p.precision, p.prompt_tokens, p.output_tokens) for p in points)
    assert len(points) == 77
    assert min(shapes.values()) >= 8
    assert set(shapes) >= {("fp8", 128, 128), ("bf16", 8192, 512), ("fp8", 1024, 128)}
    assert {p.kv_pool_tokens for p in points} == {430_272, 377_024}
    first = catalog.measured_points(
        model="Qwen3-8B", precision="fp8", prompt_tokens=128, output_tokens=128
    )[0]
    assert first.output_tokens_per_s == 213.322
    assert first.ttft_s == 0.014454
    assert first.ttft_stat == "p95"
    assert first.ttft_p99_s == 0.015034
    assert first.tpot_s == 0.0046183
    assert first.tpot_stat == "median ITL"
    assert first.tpot_p95_s == 0.0046241
    assert first.itl_p99_s == 0.0048399
    assert first.power_w == 386.7
    assert first.max_num_seqs is None


def test_tails_and_limits_came_out_of_the_notes() -> None:
    """A P99 or a seat limit stays hidden in prose, where no figure can use it."""
    points = catalog.measured_points()
    known = {
        field: sum(getattr(point, field) is not None for point in points)
        for field in (
            "ttft_p99_s",
            "tpot_p95_s",
            "tpot_p99_s",
            "itl_p99_s",
            "e2e_mean_s",
            "power_w",
            "kv_pool_tokens",
            "max_num_seqs",
        )
    }
    assert known == {
        "ttft_p99_s": 77 + 28 + 28,
        "tpot_p95_s": 77,
        "tpot_p99_s": 28,
        "itl_p99_s": 77 + 9,
        "e2e_mean_s": 28,
        "power_w": 77,
        "kv_pool_tokens": 77 + 1,
        "max_num_seqs": 3,
    }


def test_load_is_stated_in_its_own_terms() -> None:
    """A request rate is read as a concurrency."""
    for point in catalog.measured_points():
        if point.load == "open loop":
            assert point.offered_per_s is not None, point
            assert point.concurrency is None, point
        else:
            assert point.offered_per_s is None, point
        if point.load in {"closed loop", "static batch", "single stream"}:
            assert point.concurrency is not None, point
            assert point.concurrency >= 1, point


def test_statistics_are_named_where_there_is_a_figure() -> None:
    """A P95 is drawn beside a mean."""
    for point in catalog.measured_points():
        assert (point.ttft_s is None) == (point.ttft_stat is None), point
        assert (point.tpot_s is None) == (point.tpot_stat is None), point


def test_tails_are_not_below_the_middle() -> None:
    """A percentile landed in the wrong column."""
    for point in catalog.measured_points():
        if point.ttft_p99_s is not None:
            assert point.ttft_s is not None
            assert point.ttft_p99_s >= point.ttft_s, point
        if point.tpot_p95_s is not None:
            assert point.tpot_s is not None
            assert point.tpot_p95_s > 0.99 * point.tpot_s, point
        if point.e2e_mean_s is not None:
            assert point.ttft_s is not None
            assert point.e2e_mean_s > point.ttft_s, point


def test_points_name_catalogue_cards_and_models() -> None:
    """A measured sweep cannot be compared with a prediction, for want of a name."""
    known = {card.name for card in catalog.gpus()}
    points = catalog.measured_points()
    assert {point.gpu for point in points} - known == ONLY_MEASURED_GPUS
    for name in {point.model for point in points} - ONLY_MEASURED_MODELS:
        catalog.model(name)
    for name in ONLY_MEASURED_MODELS:
        with pytest.raises(catalog.UnknownNameError):
            catalog.model(name)


def little(point: catalog.MeasuredPoint) -> float | None:
    """Requests in flight by Little's law over the stated concurrency."""
    if (
        point.concurrency is None
        or point.output_tokens_per_s is None
        or point.output_tokens is None
        or point.ttft_s is None
        or point.tpot_s is None
    ):
        return None
    e2e_s = point.ttft_s + (point.output_tokens - 1) * point.tpot_s
    return point.output_tokens_per_s / point.output_tokens * e2e_s / point.concurrency


def test_recorded_closed_loops_obey_littles_law() -> None:
    """A throughput, a latency or a concurrency of a measured sweep is wrong (or mixes units)."""
    odd = {}
    checked = 0
    for point in catalog.measured_points(load="closed loop", throughput_is="recorded"):
        ratio = little(point)
        assert ratio is not None, point
        checked += 1
        if not 0.85 < ratio < 1.15:
            odd[point.source, point.concurrency, point.prompt_tokens] = round(ratio, 2)
    assert checked == 120
    # the exceptions that data/README.md explains
    assert odd == {
        ("silybench", 512, 1024): 0.82,
        ("vultr-cookbook", 512, 2048): 0.75,
        ("vultr-cookbook", 1024, 2048): 0.38,
    }


def test_derived_throughput_is_circular() -> None:
    """A throughput computed from latencies passes for a measured one."""
    derived = catalog.measured_points(throughput_is="derived", load="closed loop")
    assert len(derived) == 577
    for point in derived:
        assert little(point) == pytest.approx(1, abs=5e-5)
    static = catalog.measured_points(source="splitwise-sim")
    assert {point.throughput_is for point in static} == {"derived"}
    for point in static:
        assert point.output_tokens_per_s is not None
        assert point.concurrency is not None
        assert point.tpot_s is not None
        assert point.output_tokens_per_s == pytest.approx(
            point.concurrency / point.tpot_s, rel=1e-3
        )


def test_rates_and_output_length_agree() -> None:
    """Tokens/s, requests/s and tokens a request contradict each other."""
    checked = 0
    for point in catalog.measured_points():
        if point.output_tokens_per_s and point.requests_per_s and point.output_tokens:
            checked += 1
            length = point.output_tokens_per_s / point.requests_per_s
            assert length == pytest.approx(point.output_tokens, rel=0.02), point
    assert checked == 982


def test_no_server_beats_its_memory() -> None:
    """A dense model's token comes faster than its weights can be read: a unit slipped."""
    cards = {card.name: card for card in catalog.gpus()}
    checked = 0
    for point in catalog.measured_points():
        if point.tpot_s is None or point.gpu not in cards:
            continue
        if point.precision not in BYTES_PER_PARAMETER or point.model in ONLY_MEASURED_MODELS:
            continue
        shape = catalog.model(point.model)
        if shape.is_moe:
            continue
        weights = shape.streamed_parameters * BYTES_PER_PARAMETER[point.precision]
        split = point.n_gpus if point.tensor_parallel == point.n_gpus else 1
        checked += 1
        assert point.tpot_s > weights / split / cards[point.gpu].bandwidth_bytes_per_s, point
    assert checked > 500


def test_every_closed_loop_says_how_it_was_run() -> None:
    """Equal lengths in lock-step and drawn ones differ by a factor in TTFT; nobody would know."""
    kinds = set()
    for point in catalog.measured_points():
        told = (point.shortest_share, point.requests_per_user, point.protocol_from)
        if point.load != "closed loop":
            assert told == (None, None, None)
            continue
        assert point.shortest_share is not None
        assert 0.5 <= point.shortest_share <= 1
        assert point.requests_per_user in (5, 10)
        kinds.add((point.source, point.shortest_share, point.protocol_from))
    assert kinds == {
        ("silybench", 1.0, "documentation"),
        ("aiconfigurator-inferencex", 0.8, "documentation"),
        ("nim-1.5", 0.99, "documentation"),
        ("aiconfigurator-gap", 1.0, "latencies"),
        ("aiconfigurator-gap", 0.8, "latencies"),
        ("vultr-cookbook", 1.0, "assumed"),
        ("arc-pro-b-blog", 1.0, "assumed"),
    }


def test_points_that_nobody_measured_are_an_empty_tuple() -> None:
    """An explorer's slider position without a measurement raises."""
    assert catalog.measured_points("H100-80GB-SXM", prompt_tokens=77) == ()
    assert catalog.measured_points("RTX-4090", "Qwen3-8B") == ()


def test_unknown_filter_names_the_argument() -> None:
    """A mistyped filter silently gives no points."""
    with pytest.raises(catalog.UnknownNameError, match=r"throughput_is='measured' is not known"):
        catalog.measured_points(throughput_is="measured")
    with pytest.raises(catalog.UnknownNameError, match=r"did you mean 'Qwen3-8B'"):
        catalog.measured_points(model="Qwen38B")


def test_frame_holds_the_same_points() -> None:
    """The table that students filter differs from the rows behind it."""
    frame = catalog.measured_frame()
    assert len(frame) == 1158
    assert list(frame.columns) == list(catalog.MeasuredPoint.__dataclass_fields__)
    chosen = catalog.measured_frame(catalog.measured_points(source="nim-1.5"))
    assert chosen["output_tokens_per_s"].max() == 4521.68
    assert chosen["kv_pool_tokens"].isna().all()
    empty = catalog.measured_frame(())
    assert list(empty.columns) == list(frame.columns)
    assert len(empty) == 0


# --- step times ------------------------------------------------------------------------------


def test_step_times_by_source_and_card() -> None:
    """A card of the validation has no step times."""
    counts = Counter((row.source, row.gpu) for row in catalog.iteration_times())
    assert counts == {
        ("vidur", "A100-80GB-SXM"): 39,
        ("vidur", "H100-80GB-SXM"): 39,
        ("vidur", "A40"): 13,
        ("llmservingsim", "RTX-4090"): 12,
        ("llmservingsim", "RTX-PRO-6000-Server"): 12,
        ("splitwise-sim", "A100-80GB-SXM"): 78,
        ("splitwise-sim", "H100-80GB-SXM"): 78,
    }
    assert len(catalog.iteration_times("A40", "vidur")) == 13
    with pytest.raises(catalog.UnknownNameError, match="did you mean 'RTX-4090'"):
        catalog.iteration_times("4090")


def test_spot_checked_step_times() -> None:
    """Milliseconds passed for seconds, or a column moved."""
    (step,) = (
        row
        for row in catalog.iteration_times("RTX-4090")
        if row.phase == "decode" and row.sequences == 256
    )
    assert (step.context_tokens, step.matrices_s, step.attention_s, step.head_s, step.step_s) == (
        512,
        0.023933,
        0.019799,
        0.001982,
        0.045714,
    )


def test_steps_are_the_sum_of_their_parts() -> None:
    """A part of a step is counted twice or forgotten."""
    for row in catalog.iteration_times():
        assert (row.phase == "prefill") == (row.prompt_tokens > 0), row
        assert (row.phase == "decode") == (row.context_tokens > 0), row
        if row.step_s is None:
            assert row.source == "vidur"
            assert row.attention_s is None
            assert row.matrices_s is not None
        elif row.source != "splitwise-sim":
            parts = (row.matrices_s, row.attention_s, row.all_reduce_s, row.head_s)
            assert row.step_s == pytest.approx(sum(part or 0 for part in parts), abs=2e-6), row


def test_no_step_beats_its_memory() -> None:
    """A step ends before the weights of its layers are read."""
    for row in catalog.iteration_times():
        shape, card = catalog.model(row.model), catalog.gpu(row.gpu)
        layers = 2 * (shape.streamed_parameters - shape.embedding_parameters)
        floor_s = layers / row.tensor_parallel / card.bandwidth_bytes_per_s
        seconds = row.step_s if row.step_s is not None else row.matrices_s
        assert seconds is not None
        assert seconds > floor_s, row


def test_static_batches_are_the_same_in_both_tables() -> None:
    """The same measurement has two values in data/."""
    steps = {
        (row.gpu, row.tensor_parallel, row.phase, row.sequences, row.prompt_tokens or None): row
        for row in catalog.iteration_times(source="splitwise-sim")
    }
    checked = 0
    for point in catalog.measured_points(source="splitwise-sim"):
        if point.output_tokens == 128:
            assert point.concurrency is not None
            assert point.prompt_tokens is not None
            prompt_tokens = int(point.prompt_tokens)
            key = (point.gpu, point.n_gpus, "prefill", point.concurrency, prompt_tokens)
            assert steps[key].step_s == pytest.approx(point.ttft_s, abs=6e-6)
            checked += 1
    assert checked == 26


# --- vLLM logs -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "card", "seats"),
    [("rtx-4090", "RTX-4090", 256), ("rtx-pro-6000", "RTX-PRO-6000-Server", 128)],
)
def test_log_is_in_order(name: str, card: str, seats: int) -> None:
    """A logged request starts before it arrives, or the settings are another run's."""
    log = catalog.vllm_log(name)
    assert (log.gpu, log.max_num_seqs, log.max_num_batched_tokens) == (card, seats, 2048)
    assert catalog.model(log.model).name == "Llama-3.1-8B"
    for column in (log.arrival_s, log.prompt_tokens, log.output_tokens, log.ttft_s, log.e2e_s):
        assert column.shape == (300,)
        assert not column.flags.writeable
    assert log.arrival_s[0] == 0
    assert (np.diff(log.arrival_s) >= 0).all()
    assert (log.queue_s >= 0).all()
    assert (log.queue_s < log.ttft_s).all()
    assert (log.ttft_s < log.e2e_s).all()
    assert (log.prompt_tokens >= 1).all()
    assert (log.output_tokens > 1).all()


def test_log_agrees_with_its_summary() -> None:
    """The log and the point that summarises it are different runs."""
    log = catalog.vllm_log("rtx-4090")
    (point,) = catalog.measured_points("RTX-4090", "Llama-3.1-8B", source="llmservingsim")
    makespan_s = (log.arrival_s + log.e2e_s).max()
    assert log.ttft_s.mean() == pytest.approx(point.ttft_s, rel=1e-4)
    assert log.tpot_s.mean() == pytest.approx(point.tpot_s, rel=1e-3)
    assert log.output_tokens.mean() == pytest.approx(point.output_tokens, abs=0.05)
    assert log.output_tokens.sum() / makespan_s == pytest.approx(
        point.output_tokens_per_s, rel=1e-3
    )
    assert log.num_kv_blocks is not None
    assert log.num_kv_blocks * log.block_size == point.kv_pool_tokens


def test_saturated_log_cannot_hold_its_seats() -> None:
    """The RTX 4090 log is no example of preemption: its seats fit into its blocks."""
    log = catalog.vllm_log("rtx-4090")
    assert log.num_kv_blocks is not None
    tokens = int((log.prompt_tokens + log.output_tokens).mean() * log.max_num_seqs)
    assert tokens > 5 * log.num_kv_blocks * log.block_size
    assert catalog.vllm_log("rtx-pro-6000").num_kv_blocks is None


# --- traces ----------------------------------------------------------------------------------

LENGTH_TABLES = sorted({(r["trace"], r["which"]) for r in cells("traces/length_quantiles.csv")})
AZURE = ["azure-2023-code", "azure-2023-conversation"]


def test_traces_with_quantile_tables() -> None:
    """A workload that the lessons replay has no length distribution."""
    names = {trace for trace, _ in LENGTH_TABLES}
    assert names == {
        *AZURE,
        "mooncake-conversation",
        "ragpulse",
        "servegen-deepseek-r1",
        "servegen-m-large",
        "sharegpt",
    }
    assert len(LENGTH_TABLES) == 2 * len(names)


@pytest.mark.parametrize(("trace", "which"), LENGTH_TABLES)
def test_quantile_table_is_a_distribution(trace: str, which: str) -> None:
    """Lengths drawn from the table go backwards, fall below 1, or miss the trace's mean."""
    table = catalog.length_quantiles(trace, which)
    summary = catalog.length_statistics(trace, which)
    assert (table.percent[0], table.percent[-1]) == (0, 100)
    assert (np.diff(table.percent) > 0).all()
    assert (np.diff(table.tokens) >= 0).all()
    assert table.tokens[0] >= 1
    assert table.tokens[-1] == summary.max_tokens
    assert table.tokens[table.percent == 50] == summary.p50_tokens
    assert table.tokens[table.percent == 99] == pytest.approx(summary.p99_tokens, rel=1e-3)
    mean = np.trapezoid(table.tokens, table.percent / 100)
    assert mean == pytest.approx(summary.mean_tokens, rel=0.03)
    assert not table.tokens.flags.writeable


def test_known_traps_of_the_lengths() -> None:
    """The second mode and the cut, which the README warns of, are not in the figures."""
    outputs = catalog.length_quantiles("azure-2023-conversation", "output")
    share_near_411 = np.interp([380, 450], outputs.tokens, outputs.percent)
    assert np.diff(share_near_411)[0] > 20
    assert outputs.tokens[-1] == 1000
    assert catalog.length_statistics("azure-2023-code", "prompt").p99_tokens == 7436
    fits = {fit.family: fit for fit in catalog.length_fits("azure-2023-conversation", "output")}
    assert fits["lognormal"].ks == 0.1817
    mixture = fits["lognormal mixture"]
    assert mixture.ks == 0.0544
    assert mixture.mu_2 is not None
    assert math.exp(mixture.mu_2) == pytest.approx(411, abs=1)


def test_fits_have_the_parameters_of_their_family() -> None:
    """A fitted distribution cannot be drawn, for want of a parameter."""
    families: Counter[str] = Counter()
    for trace, which in {(r["trace"], r["which"]) for r in cells("traces/length_fits.csv")}:
        fits = catalog.length_fits(trace, which)
        assert [fit.ks for fit in fits] == sorted(fit.ks for fit in fits)
        for fit in fits:
            families[fit.family] += 1
            lognormal = (fit.weight_1, fit.mu_1, fit.sigma_1)
            second = (fit.mu_2, fit.sigma_2)
            scaled = (fit.shape, fit.scale_tokens)
            assert all((v is None) == (fit.family in {"gamma", "weibull"}) for v in lognormal)
            assert all((v is None) == (fit.family != "lognormal mixture") for v in second)
            assert all((v is None) == fit.family.startswith("lognormal") for v in scaled)
    assert set(families) == {"lognormal", "lognormal mixture", "gamma", "weibull"}
    assert sum(families.values()) == 96


def test_arrival_statistics_spot_values() -> None:
    """The rate or the burstiness of a trace is another one's."""
    code, chat = (catalog.arrival_statistics(trace) for trace in AZURE)
    assert (code.requests, chat.requests) == (8819, 19366)
    assert (code.mean_per_s, chat.mean_per_s) == (2.56669, 5.53042)
    assert (code.gap_cv, chat.gap_cv) == (13.1513, 1.09417)
    assert chat.gamma_shape == 0.87097
    mooncake = catalog.arrival_statistics("mooncake-conversation")
    assert mooncake.gap_max_s == 3.003
    assert mooncake.gamma_shape is None
    assert mooncake.simultaneous_share == pytest.approx(0.902, abs=1e-3)


@pytest.mark.parametrize("row", cells("traces/arrival_statistics.csv"), ids=lambda r: r["trace"])
def test_arrival_statistics_agree_with_themselves(row: dict[str, str]) -> None:
    """Requests, duration, rate and mean gap contradict each other."""
    trace = catalog.arrival_statistics(row["trace"])
    assert trace.requests / trace.duration_s == pytest.approx(trace.mean_per_s, rel=1e-4)
    assert trace.duration_s / (trace.requests - 1) == pytest.approx(trace.gap_mean_s, rel=1e-4)
    assert trace.gap_p50_s <= trace.gap_max_s <= trace.duration_s


@pytest.mark.parametrize("trace", AZURE)
def test_gap_quantiles_agree_with_the_summary(trace: str) -> None:
    """The curve drawn beside Poisson belongs to another trace: mean, median, maximum or CV."""
    table, summary = catalog.gap_quantiles(trace), catalog.arrival_statistics(trace)
    share, gap_s = table.percent / 100, table.gap_s
    assert 200 <= len(share) <= 250
    assert (np.diff(share) > 0).all()
    assert (np.diff(gap_s) >= 0).all()
    assert gap_s[0] > 0
    mean = np.trapezoid(gap_s, share)
    square = (np.diff(share) * (gap_s[1:] ** 2 + gap_s[1:] * gap_s[:-1] + gap_s[:-1] ** 2)).sum()
    cv = math.sqrt(square / 3 - mean**2) / mean
    assert mean == pytest.approx(summary.gap_mean_s, rel=0.02)
    assert cv == pytest.approx(summary.gap_cv, rel=0.03)
    assert gap_s[table.percent == 50] == pytest.approx(summary.gap_p50_s, rel=1e-5)
    assert gap_s[-1] == pytest.approx(summary.gap_max_s, rel=1e-5)


@pytest.mark.parametrize("trace", AZURE)
@pytest.mark.parametrize("window_s", [1, 10])
def test_window_counts_agree_with_the_summary(trace: str, window_s: int) -> None:
    """The histogram of counts has windows too many or too few, or another dispersion."""
    counts, summary = catalog.window_counts(trace, window_s), catalog.arrival_statistics(trace)
    assert counts.windows.sum() == int(summary.duration_s // window_s)
    assert (np.diff(counts.arrivals) > 0).all()
    mean = counts.mean_arrivals
    assert mean == pytest.approx(window_s * summary.mean_per_s, rel=5e-3)
    variance = (counts.windows * (counts.arrivals - mean) ** 2).sum() / counts.windows.sum()
    assert variance / mean == pytest.approx(getattr(summary, f"dispersion_{window_s}s"), rel=1e-5)
    assert counts.arrivals[-1] / mean == pytest.approx(
        getattr(summary, f"peak_to_mean_{window_s}s"), rel=1e-5
    )


def test_code_trace_is_on_and_off() -> None:
    """The lesson that a real trace is not Poisson has no example."""
    counts = catalog.window_counts("azure-2023-code", 1)
    empty = counts.windows[counts.arrivals == 0][0] / counts.windows.sum()
    assert empty == pytest.approx(0.734, abs=1e-3)
    assert math.exp(-counts.mean_arrivals) < 0.08  # what Poisson would leave empty


@pytest.mark.parametrize("trace", AZURE)
def test_minutes_cover_the_trace(trace: str) -> None:
    """Requests are lost or counted twice between the minutes."""
    minutes, summary = catalog.arrivals_per_minute(trace), catalog.arrival_statistics(trace)
    assert [minute.minute for minute in minutes] == list(range(len(minutes)))
    assert sum(minute.arrivals for minute in minutes) == summary.requests
    assert sum(minute.covered_s for minute in minutes) == pytest.approx(
        summary.duration_s, abs=0.06
    )
    assert {minute.covered_s for minute in minutes[:-1]} == {60.0}
    whole = np.array([minute.arrivals for minute in minutes[:-1]])
    assert whole.var() / whole.mean() == pytest.approx(summary.dispersion_60s, rel=1e-5)


def test_unknown_trace_part_or_window() -> None:
    """A wrong request for a trace's statistics gives another trace's."""
    with pytest.raises(catalog.UnknownNameError, match=r"which='input' .*Known: prompt, output"):
        catalog.length_quantiles("sharegpt", "input")
    with pytest.raises(catalog.UnknownNameError, match=r"trace='sharegpt' is not known"):
        catalog.arrival_statistics("sharegpt")
    with pytest.raises(ValueError, match=r"window_s=60 was not counted; give one of \[1, 10\]"):
        catalog.window_counts("azure-2023-code", 60)


# --- reading ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    name: str
    size_bytes: int
    time_s: float | None
    known: bool
    day: date | None
    twins: tuple[str, ...]
    note: str = ""


HEADER = "name,size_bytes,time_s,known,day,twins,note\n"
GOOD = "a,1,0.5,yes,2026-09-25,b; c,\n"


def test_a_good_table_is_read(tmp_path: Path) -> None:
    """Types get lost between the file and the row."""
    (tmp_path / "t.csv").write_text(HEADER + GOOD + "d,2,,no,,,odd\n", encoding="utf-8")
    first, second = read_rows(Sample, "t.csv", tmp_path)
    assert first == Sample("a", 1, 0.5, True, date(2026, 9, 25), ("b", "c"))
    assert second == Sample("d", 2, None, False, None, (), "odd")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, "is missing"),
        ("", r"has the columns \[\]"),
        (HEADER, "has a header and no rows"),
        (HEADER.replace("time_s", "time_ms") + GOOD, "has the columns .*'time_ms'"),
        (HEADER + GOOD + "b,2\n", "line 3: 2 cells, not 7"),
        (HEADER + ",1,0.5,yes,,,\n", "line 2: name='' is empty"),
        (HEADER + "a,1.5,0.5,yes,,,\n", "line 2: size_bytes='1.5' is not a whole number"),
        (HEADER + "a,1,fast,yes,,,\n", "line 2: time_s='fast' is not a number"),
        (HEADER + "a,1,nan,yes,,,\n", "line 2: time_s='nan' is not finite"),
        (HEADER + "a,1,,maybe,,,\n", "line 2: known='maybe' is neither yes nor no"),
        (HEADER + "a,1,,yes,last week,,\n", "line 2: day='last week' is not a date"),
        (HEADER + '"a,1,,yes,,,\n', "cannot be read"),
    ],
)
def test_damaged_table_says_where_and_how_to_mend(
    tmp_path: Path, text: str | None, complaint: str
) -> None:
    """A broken clone ends in a KeyError from inside csv, or in figures that are quietly wrong."""
    if text is not None:
        (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    with pytest.raises(catalog.DataFileError, match=complaint) as caught:
        read_rows(Sample, "t.csv", tmp_path)
    message = str(caught.value)
    assert str(tmp_path / "t.csv") in message
    assert "clone again" in message
    assert "pip install -e ." in message
    assert caught.value.__cause__ is None  # students see one error, not two


def test_table_that_is_not_text(tmp_path: Path) -> None:
    """A file that another program overwrote ends in a UnicodeDecodeError."""
    (tmp_path / "t.csv").write_bytes(HEADER.encode() + b"\xff\xfe\x00\n")
    with pytest.raises(catalog.DataFileError, match="cannot be read"):
        read_rows(Sample, "t.csv", tmp_path)


def test_tables_are_read_once() -> None:
    """Each call parses the file again, and a slider stutters."""
    assert catalog.gpus() is catalog.gpus()
    assert catalog.measured_points()[0] is catalog.measured_points()[0]
    assert catalog.length_quantiles("sharegpt", "prompt") is catalog.length_quantiles(
        "sharegpt", "prompt"
    )


def test_import_reads_no_file_and_loads_no_heavy_library() -> None:
    """`import course` becomes slow because the catalogue pulls in pandas or numpy."""
    script = (
        "import sys, builtins, io\n"
        "from pathlib import Path\n"
        "from course.serving import catalog\n"
        "from course.serving.catalog import tables\n"
        "heavy = {'numpy', 'pandas', 'scipy', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert tables._kept.cache_info().currsize == 0\n"
        "catalog.gpu('T4'), catalog.model('Qwen3-8B'), catalog.prices('T4')\n"
        "heavy = {'numpy', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_rows_cannot_be_changed() -> None:
    """One notebook cell changes a figure for all the others."""
    with pytest.raises(AttributeError):
        catalog.gpu("T4").power_w = 1.0  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        catalog.gap_quantiles("azure-2023-code").gap_s[0] = 1.0
