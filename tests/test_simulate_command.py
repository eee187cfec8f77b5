"""`python -m course simulate` as a person uses it: every layout, options, errors, output."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from course.cli import app
from course.commands._server import waiting
from course.commands.simulate import simulate

APP = typer.Typer(pretty_exceptions_enable=False)
APP.command()(simulate)

LAYOUTS = {
    "azure": (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n"
        "2023-11-16 18:15:50.9951690,396,109\n"
        "2023-11-16 18:15:51.2225670,879,55\n"
    ),
    "burstgpt": (
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,"
        "Log Type\n"
        "5,a,1.5,ChatGPT,374,44,418,Conversation log\n"
        "9.314579,b,2,ChatGPT,396,109,505,API log\n"
        "9.541977,c,2,GPT-4,879,55,934,API log\n"
        "12,d,2,GPT-4,77,0,77,API log\n"
    ),
    "mooncake": "".join(
        json.dumps(
            {"timestamp": at, "input_length": prompt, "output_length": output, "hash_ids": [0]}
        )
        + "\n"
        for at, prompt, output in [(0, 374, 44), (4314.579, 396, 109), (4541.977, 879, 55)]
    ),
    "servegen": (
        "request_id,start_time,input_tokens,output_tokens\n"
        "0,100,374,44\n1,104.314579,396,109\n2,104.541977,879,55\n"
    ),
    "plain": (
        "arrival_s,prompt_tokens,output_tokens\n"
        "0,374,44\n4.314579,396,109\n4.541977,879,55\n"
    ),
}  # fmt: skip


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(LAYOUTS["plain"], encoding="utf-8")
    return path


def run(*options: object) -> Any:
    return CliRunner().invoke(APP, [str(option) for option in options])


def words(result: Any) -> str:
    assert result.exception is None, result.exception
    assert result.exit_code == 0
    return " ".join(result.output.split())


def refused(*options: object) -> str:
    """What the command line prints after "error: ": it turns these exceptions into one line."""
    result = run(*options)
    assert isinstance(result.exception, (ValueError, OSError)), result.output
    assert "\n" not in str(result.exception)
    assert result.output == ""
    return str(result.exception)


# --- the trace ---------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_simulation(layout: str, tmp_path: Path) -> None:
    """A trace of another collection is read with another unit, or with its failures in it."""
    path = tmp_path / ("trace.jsonl" if layout == "mooncake" else "trace.csv")
    path.write_text(LAYOUTS[layout], encoding="utf-8")
    target = tmp_path / "out.csv"
    text = words(run("--trace", path, "--csv", target))
    assert "3 offered: 3 finished, 0 rejected" in text
    with target.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["arrival_s"]) for row in rows] == pytest.approx([0, 4.314579, 4.541977])
    # alone: one step of 10 ms, 374 tokens and their pairs
    ttft_s = 0.010 + 3e-5 * 374 + 1e-9 * 374 * 375 / 2
    assert float(rows[0]["ttft_s"]) == pytest.approx(ttft_s)
    assert [row["status"] for row in rows] == ["finished"] * 3
    if layout == "burstgpt":
        assert "1 row without output tokens is left out" in text


def test_rate_and_limit_change_the_load(trace: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    run("--trace", trace, "--limit", 2, "--rate", 10, "--json", target)
    found = json.loads(target.read_text(encoding="utf-8"))
    assert found["trace"]["requests"] == 2
    assert found["trace"]["rate_per_s"] == pytest.approx(10)
    assert found["trace"]["rescaled"] is True


# --- the cost ----------------------------------------------------------------------------------


def test_card_and_model_give_cost_and_memory(trace: Path) -> None:
    text = words(run("--trace", trace, "--gpu", "rtx-4090", "--model", "llama-3.1-8b"))
    assert "Llama-3.1-8B in bf16 on one RTX-4090, estimated from data sheets alone" in text
    assert "2,154 KV blocks of 16 tokens" in text
    assert "mixture" not in text
    moe = words(run("--trace", trace, "--gpu", "H200-141GB-SXM", "--model", "Qwen3-30B-A3B"))
    assert "a mixture of experts is outside even that" in moe


def test_without_a_card_the_numbers_are_called_made_up(trace: Path) -> None:
    """A reader takes round numbers for those of a card."""
    text = words(run("--trace", trace))
    assert "round numbers that are no card's, fixed_s=0.01" in text
    assert "KV not limited" in text


def test_own_prices_replace_single_defaults(trace: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    text = words(run("--trace", trace, "--fixed-s", 0.5, "--json", target))
    assert "your own prices, fixed_s=0.5, per_prefill_token_s=3e-05" in text
    cost = json.loads(target.read_text(encoding="utf-8"))["cost"]
    assert (cost["fixed_s"], cost["per_decode_seq_s"]) == (0.5, 1e-4)


def test_help_states_the_defaults() -> None:
    """Prices would be taken from nowhere: the help has to say what is used."""
    import inspect

    from course.serving.traces.own_trace import MADE_UP_COST

    defaults = {
        name: float(parameter.annotation.__metadata__[0].show_default)
        for name, parameter in inspect.signature(simulate, eval_str=True).parameters.items()
        if hasattr(MADE_UP_COST, name)
    }
    assert defaults == vars(MADE_UP_COST)
    text = run("--help").output
    for option in ("--trace", "--gpu", "--num-kv-blocks", "--no-chunked", "--slo-ttft", "--csv"):
        assert option in text


# --- the engine --------------------------------------------------------------------------------


def test_engine_options_reach_the_engine(trace: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    text = words(
        run(
            "--trace", trace, "--max-num-seqs", 2, "--max-num-batched-tokens", 1000,
            "--num-kv-blocks", 90, "--block-size", 32, "--no-chunked-prefill", "--order", "sjf",
            "--json", target,
        )
    )  # fmt: skip
    assert "2 seats, 1,000 tokens a step, whole prompts first, 90 KV blocks of 32" in text
    assert json.loads(target.read_text(encoding="utf-8"))["engine"] == {
        "max_num_seqs": 2, "max_num_batched_tokens": 1000, "enable_chunked_prefill": False,
        "num_kv_blocks": 90, "block_size": 32, "order": "sjf",
    }  # fmt: skip


def test_unlimited_kv_can_be_asked_for(trace: Path) -> None:
    options = ("--trace", trace, "--gpu", "RTX-4090", "--model", "Llama-3.1-8B")
    assert "KV not limited" in words(run(*options, "--num-kv-blocks", "none"))


# --- the results -------------------------------------------------------------------------------


def test_slo_is_judged(trace: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    options = ("--trace", trace, "--slo-ttft", 0.03, "--slo-tpot", 0.05, "--csv", target)
    text = words(run(*options))
    assert "66.7 % of the requests offered meet TTFT ≤ 30.0 ms and TPOT ≤ 50.0 ms" in text
    assert "not inside the SLO, which asks for 99 %" in text
    assert re.search(r"Goodput [\d.]+ requests/s that meet every limit", text)
    with target.open(newline="", encoding="utf-8") as file:
        assert [row["met_slo"] for row in csv.DictReader(file)] == ["True", "True", "False"]
    assert ": inside the SLO" in words(run(*options, "--slo-quantile", 0.6))


def test_json_is_json(trace: Path, tmp_path: Path) -> None:
    """NaN or Infinity in the file would break the next tool."""
    target = tmp_path / "out.json"
    result = run("--trace", trace, "--num-kv-blocks", 1, "--json", target)
    assert "0 finished, 3 rejected" in words(result)

    def no_constant(name: str) -> None:
        raise AssertionError(name)

    found = json.loads(target.read_text(encoding="utf-8"), parse_constant=no_constant)
    assert found["figures"]["rejected"] == 3
    assert found["percentiles"]["ttft"]["p50"]["value_s"] is None


def test_same_trace_same_output(trace: Path) -> None:
    assert run("--trace", trace).output == run("--trace", trace).output


# --- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--gpu", "H100", "--model", "Qwen3-8B"), "did you mean 'H100-80GB-PCIe'"),
        (("--gpu", "T4", "--model", "Qwen-3-8B"), "did you mean 'Qwen3-8B'"),
        (("--gpu", "T4"), "--gpu and --model belong together; add --model"),
        (("--model", "Qwen3-8B"), "--gpu and --model belong together; add --gpu"),
        (("--gpu", "T4", "--model", "Llama-3.1-8B"), "GiB short"),
        (
            ("--gpu", "L40S", "--model", "Qwen3-8B", "--per-kv-token-s", "1"),
            "--per-kv-token-s and --gpu both set the cost",
        ),
        (("--num-kv-blocks", "many"), "neither a whole number nor auto nor none"),
        (("--num-kv-blocks", "0"), "num_kv_blocks=0 is below 1"),
        (("--max-num-seqs", "0"), "max_num_seqs=0 is below 1"),
        (("--max-num-batched-tokens", "-5"), "max_num_batched_tokens=-5 is below 1"),
        (("--limit", "0"), "limit=0 is below 1"),
        (("--rate", "-1"), "rate_per_s=-1.0 is negative"),
        (("--rate", "nan"), "rate_per_s=nan is not a number"),
        (("--slo-ttft", "0"), "ttft_s=0.0 is not above 0"),
        (("--fixed-s", "-1"), "fixed_s=-1.0 is negative"),
        (("--csv", "no/such/folder/out.csv"), "there is no folder"),
        (("--n-gpus", "2"), "--n-gpus is of a card; add --gpu and --model"),
        (("--precision", "fp8"), "--precision is of a card; add --gpu and --model"),
        (("--gpu", "A10", "--model", "Qwen3-8B", "--precision", "fp8"), "precision='fp8' has no"),
        (("--gpu", "L40S", "--model", "Qwen3-8B", "--n-gpus", "0"), "n_gpus=0 is below 1"),
    ],
)
def test_bad_options_are_one_line(trace: Path, options: tuple[str, ...], expected: str) -> None:
    """A typing error ends in a page of traceback."""
    assert expected in refused("--trace", trace, *options)


def test_trace_is_never_written_over(trace: Path, tmp_path: Path) -> None:
    """The reader loses the trace to a slip of the keyboard."""
    for option in ("--csv", "--json"):
        again = trace.parent / "." / trace.name
        assert "is the file of --trace" in refused("--trace", trace, option, again)
    both = tmp_path / "out"
    assert "is the file of --csv" in refused("--trace", trace, "--csv", both, "--json", both)
    assert "is a folder" in refused("--trace", trace, "--csv", tmp_path)
    assert trace.read_text(encoding="utf-8") == LAYOUTS["plain"]


def test_bad_files_are_one_line(tmp_path: Path) -> None:
    assert "there is no file" in refused("--trace", tmp_path / "none.csv")
    for content, expected in [
        ("", "is empty"),
        ("a,b,c\n1,2,3\n", "none of which is known as arrival"),
        ("arrival_s,prompt_tokens,output_tokens\n", "holds no request"),
        ("arrival_s,prompt_tokens,output_tokens\n0,x,3\n", "line 2"),
    ]:
        path = tmp_path / "bad.csv"
        path.write_text(content, encoding="utf-8")
        assert expected in refused("--trace", path)


def test_unknown_order_is_a_usage_error(trace: Path) -> None:
    assert run("--trace", trace, "--order", "lifo").exit_code == 2


def test_the_wait_ends_with_an_error_too() -> None:
    """A reader's broken file would leave a thread that goes on drawing."""
    import threading

    before = threading.active_count()
    with pytest.raises(ValueError, match="broken"), waiting("reading"):
        raise ValueError("broken")
    assert threading.active_count() == before


def test_a_link_to_itself_is_one_line(tmp_path: Path, trace: Path) -> None:
    loop = tmp_path / "loop.csv"
    try:
        loop.symlink_to(loop)
    except OSError:
        pytest.skip("this machine lets nobody make links")
    assert "loop.csv" in refused("--trace", loop)
    assert "loop.csv" in refused("--trace", trace, "--csv", loop / "out.csv")


def test_what_the_error_says_would_fit_can_be_asked_for(trace: Path) -> None:
    """The way out must be one of the command's own options."""
    too_large = ("--trace", trace, "--gpu", "H100-80GB-SXM", "--model", "Llama-3.1-70B")
    assert "would fit: n_gpus=2 in bf16, or n_gpus=1 in fp8" in refused(*too_large)
    text = words(run(*too_large, "--n-gpus", "2"))
    assert "Llama-3.1-70B in bf16 on 2 H100-80GB-SXM" in text
    assert "outside even that" not in text
    text = words(run(*too_large, "--precision", "fp8"))
    assert "Llama-3.1-70B in fp8 on one H100-80GB-SXM" in text
    over_pcie = ("--trace", trace, "--gpu", "L40S", "--model", "Llama-3.1-70B", "--n-gpus", "4")
    assert "that many cards on such links is outside even that" in words(run(*over_pcie))


def test_what_no_number_of_replicas_mends_is_said(tmp_path: Path) -> None:
    """One prompt in ten takes longer by itself than was promised: more servers are no cure."""
    rows = [f"{n * 2.0},{60_000 if n % 10 == 0 else 100},5" for n in range(200)]
    path = tmp_path / "long.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n" + "\n".join(rows), encoding="utf-8")
    card = ("--gpu", "H100-80GB-SXM", "--model", "Llama-3.1-8B")
    asked = ("simulate", "--trace", str(path), *card, "--slo-ttft", "1", "--slo-quantile")
    hard = CliRunner().invoke(app, [*asked, "0.95"]).output
    assert "Even in an empty server 10\u00a0% break the TTFT limit" in hard
    assert "the SLO cannot be had here: at most 90\u00a0% of the requests can keep it" in hard
    easy = CliRunner().invoke(app, [*asked, "0.9"]).output
    assert "no number of replicas mends that." in easy
    assert "cannot be had" not in easy
    none = CliRunner().invoke(app, [*asked[:-3], "60", "--slo-quantile", "0.9"]).output
    assert "Even in an empty server" not in none
