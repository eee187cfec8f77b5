"""`python -m course knee`: units, warnings and knees from every layout; an error is one line."""

from __future__ import annotations

import json
import re
import tracemalloc
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from course.cli import app
from tests.serving.results import layouts

CEILING = 800.0  # output tokens/s
TOKENS, PROMPT = 60, 300
LOADS = (2, 4, 6, 8, 10, 12, 16, 20, 24)


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["knee", *map(str, arguments)])


def words(result: Any) -> str:
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return " ".join(result.output.split())


def refused(*arguments: object) -> str:
    result = run(*arguments)
    assert isinstance(result.exception, (ValueError, OSError)), result.output
    return str(result.exception)


def served(asked_per_s: float) -> tuple[float, float]:
    """Requests/s and TTFT in seconds of a server that holds 800 tokens/s and then queues."""
    done = min(asked_per_s, CEILING / TOKENS)
    return done, 0.1 if done == asked_per_s else 0.1 + (asked_per_s - done)


def vllm_at(rate: float) -> dict[str, Any]:
    done, ttft_s = served(rate)
    return layouts.vllm(
        request_rate=rate, duration=400 / done, request_throughput=done,
        output_throughput=done * TOKENS, total_token_throughput=done * (TOKENS + PROMPT),
        **layouts.stats(("mean", "median", "p99"), "ttft", 500 * ttft_s),
        **layouts.stats(("mean", "median", "p99"), "e2el", 500 * ttft_s + 1475),
    )  # fmt: skip


def sglang_at(rate: float) -> dict[str, Any]:
    done, ttft_s = served(rate)
    base = layouts.sglang()
    completed = base["completed"]
    return layouts.sglang(
        request_rate=rate, max_concurrency=None, duration=completed / done,
        request_throughput=done, total_output_tokens=completed * TOKENS,
        total_input_tokens=completed * PROMPT, output_throughput=done * TOKENS,
        concurrency=layouts.GONE,
        **layouts.stats(("mean", "median", "p99"), "ttft", 500 * ttft_s),
    )  # fmt: skip


@pytest.fixture
def sweep_file(tmp_path: Path) -> Path:
    return layouts.write(tmp_path, *(vllm_at(rate) for rate in LOADS), name="vllm.json")


# --- layouts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [vllm_at, sglang_at])
def test_one_file_with_a_whole_sweep(at: Callable[[float], dict[str, Any]], tmp_path: Path) -> None:
    """Rates, tokens or milliseconds get another unit on the way, and so the knee."""
    path = layouts.write(tmp_path, *(at(rate) for rate in LOADS), name="sweep.jsonl")
    target = tmp_path / "out.json"
    text = words(run(path, "--slo-ttft", 0.5, "--json", target))
    found = json.loads(target.read_text(encoding="utf-8"))
    (sweep,) = found["sweeps"]
    assert sweep["load_unit"] == "requests/s"
    assert sweep["loads"] == list(LOADS)
    corner = CEILING / TOKENS
    plateau, bend, slo = sweep["knees"]
    assert plateau["load"] == pytest.approx(0.9 * corner, rel=0.01)
    assert bend["load"] == pytest.approx(corner, rel=0.02)
    # the P99 is twice the mean: 0.1 s up to 12/s, and 0.1 + (16 − 13.3) s at 16/s
    at_16 = 0.1 + 16 - corner
    assert slo["load"] == pytest.approx(12 + 4 * 0.4 / (at_16 - 0.1), rel=0.01)
    assert sweep["latencies_s"]["P99 TTFT"][0][0] == pytest.approx(0.1)
    assert "run once" in text
    assert "asked for 24.0 requests/s, completed 13.3 requests/s" in text


def test_one_file_a_load(tmp_path: Path, sweep_file: Path) -> None:
    """Files of one sweep are taken for as many sweeps."""
    files = [layouts.write(tmp_path, vllm_at(r), name=f"at {r}.json") for r in LOADS[::-1]]
    apart, together = words(run(*files)), words(run(sweep_file))
    for knee in ("plateau", "two_segments"):
        (one,) = [s for s in apart.split("Knee by ") if s.startswith(f'"{knee}"')]
        assert one.split(";")[0] in together


def test_closed_loop_by_users(tmp_path: Path) -> None:
    def at(users: int) -> dict[str, Any]:
        done = min(users / 1.5, CEILING / TOKENS)
        e2e_ms = 1000 * users / done
        return layouts.vllm(
            request_rate="inf", max_concurrency=users, duration=400 / done,
            request_throughput=done, output_throughput=done * TOKENS,
            **layouts.stats(("mean", "median", "p99"), "e2el", e2e_ms),
        )  # fmt: skip

    path = layouts.write(tmp_path, *(at(users) for users in (2, 5, 10, 15, 20, 25, 30)))
    text = words(run(path))
    assert 'Knee by "plateau" at 18 users' in text
    assert 'Knee by "two_segments" at 20 users' in text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (layouts.guidellm(), "guidellm"),
        (layouts.aiperf(), "aiperf"),
        (layouts.aiperf(nested=True), "aiperf"),
        (layouts.inference_perf(), "inference-perf: 1 load in requests/s"),
        (layouts.inferencex(), "inferencex"),
        (layouts.sglang_2024(), "sglang"),
        (layouts.vllm_old(max_concurrency=8), "vllm"),
    ],
)
def test_other_layouts_give_a_point(value: Any, expected: str, tmp_path: Path) -> None:
    result = run(layouts.write(tmp_path, value))
    assert expected in words(result)
    assert "too few; this takes 4 or more" in words(result)


def test_a_plain_csv(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    lines = [f"{n},{min(20 * n, 400)},{80 if n < 30 else 900}" for n in (5, 10, 15, 20, 25, 30)]
    path.write_text("\n".join(["c,speed,wait", *lines]) + "\n", encoding="utf-8")
    text = words(
        run(path, "--columns", "users=c, tokens=speed,p99_ttft_ms=wait", "--slo-ttft", 0.5)
    )
    assert 'Knee by "plateau" at 18 users' in text
    assert "P99 TTFT ≤ 500 ms holds up to 27.6 users" in text
    assert "neither users and a rate" in refused(path)


# --- warnings ------------------------------------------------------------------------------------


def test_two_data_sets_in_one_file(tmp_path: Path) -> None:
    """Two data sets are joined by one curve."""
    values = [sglang_at(rate) for rate in LOADS]
    values += [{**sglang_at(rate), "dataset_name": "another"} for rate in (4, 8)]
    text = words(run(layouts.write(tmp_path, *values, name="two.jsonl")))
    assert "mixes 2 data sets" in text
    assert f"{len(LOADS)} loads in requests/s" in text
    assert "another: 2 loads in requests/s" in text


def test_a_saturated_load_generator(tmp_path: Path) -> None:
    """A rate that was never sent is drawn as a load that the server held."""
    stages = [layouts.inference_perf() for _ in range(2)]
    stages[1]["load_summary"].update(requested_rate=100.0, achieved_rate=12.0)
    target = tmp_path / "out.json"
    files = [layouts.write(tmp_path, s, name=f"stage_{i}.json") for i, s in enumerate(stages)]
    text = words(run(*files, "--json", target))
    assert "stage_1.json: asked for 100 requests/s, but only 12.0 were sent" in text
    assert "load generator could do no more" in text
    (sweep,) = json.loads(target.read_text(encoding="utf-8"))["sweeps"]
    assert 12.0 in sweep["loads"]
    assert 100.0 in sweep["loads_meant"]


def test_littles_law(tmp_path: Path) -> None:
    """Users who wait inside the client count as users of the server."""
    value = layouts.vllm(
        request_rate="inf", max_concurrency=256, request_throughput=20.0,
        **layouts.stats(("mean",), "e2el", 5000.0),
    )  # fmt: skip
    text = words(run(layouts.write(tmp_path, value)))
    assert "100 (meant 256)" in text
    assert "by Little's law only 100 were in the server" in text


def test_a_statistic_that_is_missing(tmp_path: Path, sweep_file: Path) -> None:
    """A median is judged as if it were a P99, and nobody says so."""
    text = words(run(sweep_file, "--slo-ttft", 0.5, "--slo-stat", "p95"))
    assert "tells no P95 TTFT at every load; the P99 TTFT stands in" in text
    mean = words(run(sweep_file, "--slo-ttft", 0.5, "--slo-stat", "mean"))
    assert "mean TTFT ≤ 500 ms holds up to" in mean
    assert "stands in" not in mean
    table = tmp_path / "bare.csv"
    table.write_text("users,tokens_per_s\n1,10\n2,20\n", encoding="utf-8")
    assert "tells no E2E at every load; that limit is not judged" in words(
        run(table, "--slo-e2e", 5)
    )


STRICTER = "which is stricter, so the knee by the SLO is cautious"
LAXER = "so more requests break the limit than the knee by the SLO lets one think"
UNKNOWN = "which may be longer or shorter, so the knee by the SLO may lie on either side"


@pytest.mark.parametrize(
    ("asked", "told", "stands_in", "consequence"),
    [
        ("P95", "p99", "P99", STRICTER),
        ("median", "p90", "P90", STRICTER),
        ("median", "mean", "mean", STRICTER),
        ("mean", "p99", "P99", STRICTER),
        ("P99", "p99.9", "P99.9", STRICTER),
        ("P99", "p95", "P95", LAXER),
        ("P99.9", "p99.0", "P99", LAXER),
        ("P99", "mean", "mean", LAXER),
        ("mean", "p50", "median", LAXER),
        ("P90", "p75", "P75", LAXER),
        ("P75", "mean", "mean", UNKNOWN),
    ],
)
def test_what_a_stand_in_means(
    asked: str, told: str, stands_in: str, consequence: str, tmp_path: Path
) -> None:
    """Who asked for less than the file tells is warned of misses that the knee rules out."""
    table = tmp_path / "told.csv"
    lines = [f"{n},{min(20 * n, 400)},{80 if n < 30 else 900}" for n in (5, 10, 15, 20, 25, 30)]
    table.write_text("\n".join([f"users,tok_s,{told}_ttft_ms", *lines]), encoding="utf-8")
    text = words(run(table, "--slo-ttft", 0.5, "--slo-stat", asked))
    assert (
        f"tells no {asked} TTFT at every load; the {stands_in} TTFT stands in, {consequence}"
        in text
    )
    assert sum(sentence in text for sentence in (STRICTER, LAXER, UNKNOWN)) == 1


@pytest.mark.parametrize("written", ["P99.0", "p99.00", " p99 "])
def test_one_statistic_written_otherwise(written: str, sweep_file: Path) -> None:
    """P99 stands in for P99.0, with a warning."""
    text = words(run(sweep_file, "--slo-ttft", 0.5, "--slo-stat", written))
    assert "P99 TTFT ≤ 500 ms holds up to" in text
    assert "stands in" not in text


def test_repeats_give_an_interval(tmp_path: Path) -> None:
    values = []
    for repeat in range(5):
        for rate in LOADS:
            value = vllm_at(rate)
            value["output_throughput"] *= 1 + 0.004 * repeat
            values.append(value)
    text = words(run(layouts.write(tmp_path, *values)))
    assert "run 5 times" in text
    assert "95 % interval from 5 runs of each load" in text
    assert "if they were different servers, give their files apart" in text


def test_runs_without_a_load_are_left_out(tmp_path: Path) -> None:
    """A run that sent everything at once is drawn at some load."""
    value = layouts.vllm(request_rate="inf", max_concurrency=None)
    result = run(layouts.write(tmp_path, value))
    assert result.exit_code == 1
    assert "sent everything at once; it is left out" in words(result)
    nothing = run(layouts.write(tmp_path, layouts.vllm_nothing_completed(), name="none.json"))
    assert nothing.exit_code == 1
    assert "no request completed" in words(nothing)
    no_rates = run(layouts.write(tmp_path, layouts.llmperf(), name="llmperf.json"))
    assert "tells no throughput" in words(no_rates)


def test_thousands_of_loads(tmp_path: Path) -> None:
    """A sweep with many loads, or resamples of it, takes all memory."""
    path = tmp_path / "long.csv"
    lines = [f"{n},{min(n, 1000)}" for n in range(1, 2001)]
    path.write_text("\n".join(["users,tok_s", *lines]), encoding="utf-8")
    tracemalloc.start()
    try:
        text = words(run(path))
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()
    assert 'Knee by "two_segments" at 1,000 users' in text


# --- what comes out ------------------------------------------------------------------------------


def test_svg_says_what_it_shows(tmp_path: Path, sweep_file: Path) -> None:
    """The picture lacks a knee, or cannot be read without eyes, or changes with every run."""
    target, again = tmp_path / "knee.svg", tmp_path / "again.svg"
    run(sweep_file, "--slo-ttft", 0.5, "--svg", target)
    run(sweep_file, "--slo-ttft", 0.5, "--svg", again)
    assert target.read_bytes() == again.read_bytes()
    ElementTree.parse(target)
    text = target.read_text(encoding="utf-8")
    assert "plateau 12" in text
    assert "two segments 13" in text
    assert "P99 TTFT limit 500 ms" in text
    assert "Knee by &quot;plateau&quot;" in text or 'Knee by "plateau"' in text


SLOW = "users,tok_s,p99_ttft,name\n" + "".join(
    f"{n},{min(20 * n, 400)},0.1,{{name}}\n" for n in (5, 10, 15, 20, 25, 30)
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a$\\frac$", "a$\\frac$"),
        ("costs $5 or $6 of \\x_{", "costs $5 or $6 of \\x_{"),
        ("a\x1b[31m\x07b", "a [31m b"),
        ("<&>]]>", "<&>]]>"),
        ("\ufffe\x85", "names"),
    ],
)
def test_any_name_can_be_drawn(name: str, shown: str, tmp_path: Path) -> None:
    """A name with a $ stops the drawing, or one with a control character spoils the file."""
    table, target = tmp_path / "names.csv", tmp_path / "knee.svg"
    table.write_text(SLOW.format(name=name), encoding="utf-8")
    assert f"The curves: {target}" in run(table, "--svg", target).output
    root = ElementTree.parse(target).getroot()
    assert shown in [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("name", ["cost $5 $x_{", "a\x1b\x07b", "odd\udcff"])
def test_any_file_name_can_be_told(name: str, tmp_path: Path) -> None:
    """A file whose name is no text on this machine gives no output at all."""
    table = tmp_path / f"{name}.csv"
    table.write_text("users,tok_s,p99_ttft\n1,10,1\n2,20,2\n", encoding="utf-8")
    value = layouts.vllm(request_rate="inf", max_concurrency=None)
    result = layouts.write(tmp_path, value, name=f"{name}.json")
    target, drawn = tmp_path / f"{name} out.json", tmp_path / f"{name} out.svg"
    text = words(run(table, result, "--json", target, "--svg", drawn))
    found = json.loads(target.read_text(encoding="utf-8"))
    assert found["sweeps"][0]["name"].isprintable()
    assert all(said.isprintable() for said in found["files"])
    assert text.isprintable()
    ElementTree.parse(drawn)


def test_an_idle_server_is_drawn(tmp_path: Path) -> None:
    """A throughput of 0 throughout ends in a warning of the drawing library."""
    table, target = tmp_path / "idle.csv", tmp_path / "knee.svg"
    table.write_text("users,tok_s\n1e-9,0\n2,0\n3,0\n1e15,0\n", encoding="utf-8")
    assert "the throughput is 0 at every load" in words(run(table, "--svg", target))
    ElementTree.parse(target)


def test_a_table_by_another_name(tmp_path: Path) -> None:
    """A table that is not named .csv is refused as broken JSON."""
    plain, tabs = tmp_path / "sweep.txt", tmp_path / "sweep.tsv"
    plain.write_text("users,tok_s\n1,10\n2,20\n", encoding="utf-8")
    tabs.write_text("users\ttok_s\n1\t10\n2\t20\n", encoding="utf-8")
    assert "sweep: 2 loads in users" in words(run(plain))
    assert "is separated by tabs; save it separated by commas" in refused(tabs)


def test_json_is_json(tmp_path: Path) -> None:
    """NaN or Infinity in the file breaks the next tool."""
    table = tmp_path / "bare.csv"
    table.write_text("users,tokens_per_s\n1,10\n2,20\n", encoding="utf-8")
    target = tmp_path / "out.json"
    assert "No SLO was given" in words(run(table, "--json", target))

    def no_constant(name: str) -> None:
        raise AssertionError(name)

    found = json.loads(target.read_text(encoding="utf-8"), parse_constant=no_constant)
    assert found["sweeps"][0]["requests_per_s"] == [[None, None]]
    assert found["sweeps"][0]["knees"][0]["found"] is False


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--slo-ttft", 0), "is not above 0"),
        (("--slo-stat", "P0"), "--slo-stat='P0' is not known"),
        (("--slo-stat", "most"), "--slo-stat='most' is not known"),
        (("--slo-stat", "p1e1"), "--slo-stat='p1e1' is not known"),
        (("--slo-stat", "p101"), "--slo-stat='p101' is not known"),
        (("--columns", "users=a,Users=b"), "--columns gives Users twice"),
        (("--columns", "users"), "--columns has 'users'; give ROLE=COLUMN"),
        (("--svg", "no/such/folder/a.svg"), "there is no folder"),
    ],
)
def test_bad_options_are_one_line(
    sweep_file: Path, options: tuple[object, ...], expected: str
) -> None:
    assert expected in refused(sweep_file, *options)


def test_inputs_are_never_written_over(tmp_path: Path, sweep_file: Path) -> None:
    before = sweep_file.read_bytes()
    assert "is an input too" in refused(sweep_file, "--json", sweep_file)
    both = tmp_path / "out"
    assert "is the file of --svg; give" in refused(sweep_file, "--svg", both, "--json", both)
    assert "is a folder" in refused(sweep_file, "--svg", tmp_path)
    assert sweep_file.read_bytes() == before
    assert "there is no file" in refused(tmp_path / "none.json")


@pytest.mark.parametrize("tokens", [True, False])
def test_no_two_columns_of_the_table_have_one_title(tmp_path: Path, tokens: bool) -> None:
    """Offered and served requests were both called requests/s; which one overloads the server?"""
    value = vllm_at(24)
    if not tokens:
        value = {key: number for key, number in value.items() if "output" not in key}
    path = tmp_path / "a.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    head, line = run(path).output.splitlines()[1:3]
    titles = re.split(r"  +", head.strip())
    assert titles[0] == "offered requests/s"
    assert len(set(titles)) == len(titles) == len(re.split(r"  +", line.strip()))
    cells = dict(zip(titles, re.split(r"  +", line.strip()), strict=True))
    assert cells["offered requests/s"].startswith("24")
    assert cells["served requests/s"] == "13.3"
    assert ("output tokens/s" in titles) == tokens


# --- what a full server looks like ---------------------------------------------------------------


def open_table(tmp_path: Path, *rows: str, head: str = "rate,requests_per_s,p99_ttft_s") -> Path:
    path = tmp_path / "open.csv"
    path.write_text("\n".join((head, *rows)) + "\n", encoding="utf-8")
    return path


def test_an_open_loop_that_completes_less_than_offered_is_full(tmp_path: Path) -> None:
    """27.5 of 30 and 28.1 of 35 while the tail leaps: more load brings nothing but waiting."""
    path = open_table(
        tmp_path, "1,1,0.05", "10,9.6,0.12", "20,19.2,0.23", "30,27.5,1.65", "35,28.1,17.7"
    )
    target = tmp_path / "out.json"
    run(path, "--slo-ttft", 1, "--json", target)
    knees = json.loads(target.read_text(encoding="utf-8"))["sweeps"][0]["knees"]
    assert all(knee["found"] for knee in knees)
    assert all(25 <= knee["load"] <= 28.1 for knee in knees), "no knee above the most completed"


def test_a_slow_client_does_not_make_the_server_full(tmp_path: Path) -> None:
    """The same shortfall with latencies at rest: the sweep has to go on with a faster client."""
    path = open_table(
        tmp_path, "1,1,0.05", "10,9.6,0.06", "20,19.2,0.05", "30,27.5,0.06", "35,31.5,0.06"
    )
    assert words(run(path)).count("not loaded enough") == 2


def test_two_servers_are_two_curves(tmp_path: Path) -> None:
    """Their mean would be the curve of a server that nobody has."""
    values = [vllm_at(rate) | {"max_num_seqs": seats} for seats in (8, 64) for rate in LOADS]
    text = words(run(layouts.write(tmp_path, *values, name="two.json")))
    assert "max_num_seqs=8: 9 loads in requests/s, run once" in text
    assert "max_num_seqs=64: 9 loads in requests/s, run once" in text


def test_a_time_per_token_with_the_ttft_in_it_is_not_judged_as_tpot(tmp_path: Path) -> None:
    """GuideLLM's own figure would break a promise that every single gap keeps."""
    path = layouts.write(tmp_path, layouts.guidellm(), name="guide.json")
    target = tmp_path / "out.json"
    text = words(run(path, "--slo-tpot", 1, "--json", target))
    assert "TPOT" in text
    latencies = json.loads(target.read_text(encoding="utf-8"))["sweeps"][0]["latencies_s"]
    assert "is judged as the TPOT" in text or "computed from its requests" in text
    assert latencies["mean TPOT"] == latencies["mean ITL"]
