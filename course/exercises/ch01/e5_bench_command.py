"""Exercise 1.5, The command that did something else: reference, wrong answers and judging."""

from __future__ import annotations

import argparse
import math
import shlex
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from course.exercises.build import value_exercise
from course.exercises.definition import Unacceptable, Wrong
from course.exercises.values import plain, short_repr
from course.serving.engine import EngineConfig, Run, simulate, simulate_closed
from course.serving.pricing import LinearStepCost
from course.serving.requests import metrics
from course.serving.workload import Lognormal, Poisson, Replay, draw

WANTED = 64
"""How many requests the command is to hold in flight."""


_SHARE = 0.15  # the last users finish one by one, so the mean over a whole run lies a bit below


_MOST_PROMPTS = 5_000


_SERVER_FLAGS = ("--max-num-seqs", "--max-num-batched-tokens", "--gpu-memory-utilization")


_METRICS = ("ttft", "tpot", "itl", "e2el")


@dataclass(frozen=True)
class Bench:
    """What a command asks for: its flags with their defaults filled in."""

    num_prompts: int
    request_rate: float
    max_concurrency: int | None
    sections: tuple[str, ...]
    percentiles: tuple[float, ...]
    server_flag: str = ""


class _Parser(argparse.ArgumentParser):
    """A parser that tells what is wrong in a sentence instead of ending the program."""

    def error(self, message: str) -> NoReturn:
        """Raise Unacceptable with the parser's message."""
        raise Unacceptable(f"The tool refuses the command: {message}.")


def _parser() -> _Parser:
    parser = _Parser(prog="vllm bench serve", add_help=False)
    parser.add_argument("--num-prompts", type=int, default=1000)
    parser.add_argument("--request-rate", type=float, default=math.inf)
    parser.add_argument("--max-concurrency", type=int, default=None)
    parser.add_argument("--percentile-metrics", default="ttft,tpot,itl")
    parser.add_argument("--metric-percentiles", default="99")
    return parser


def read_command(command: str) -> Bench:
    """Return what a command line asks `vllm bench serve` for.

    Raises Unacceptable, with a sentence, for a command that the tool would refuse; a flag of the
    *server* is kept in `server_flag`, since it is the mark of a misconception.

    >>> read_command("--num-prompts 640 --percentile 95").sections
    ('95',)
    >>> read_command("--max_concurrency 64").request_rate  # underscores are read as dashes
    inf
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise Unacceptable(f"The command cannot be read: {error}.") from None
    if words[:3] == ["vllm", "bench", "serve"]:
        words = words[3:]
    given, unknown = _parser().parse_known_args([_dashed(word) for word in words])
    servers = [word for word in unknown if word.split("=")[0] in _SERVER_FLAGS]
    if unknown and not servers:
        raise Unacceptable(f"The tool refuses {unknown[0]!r}: use the flags of the table only.")
    if not 1 <= given.num_prompts <= _MOST_PROMPTS:
        raise Unacceptable(f"--num-prompts {given.num_prompts}: give 1 to {_MOST_PROMPTS:,}.")
    if not given.request_rate > 0:
        raise Unacceptable(f"--request-rate {given.request_rate}: give a rate above 0, or inf.")
    if given.max_concurrency is not None and given.max_concurrency < 1:
        raise Unacceptable(f"--max-concurrency {given.max_concurrency}: give at least 1.")
    return Bench(
        given.num_prompts,
        given.request_rate,
        given.max_concurrency,
        tuple(name.strip() for name in given.percentile_metrics.split(",")),
        _percentiles(given.metric_percentiles),
        servers[0].split("=")[0] if servers else "",
    )


def _dashed(word: str) -> str:
    """The word with dashes in its flag's name, as vLLM's own parser reads it."""
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value if word.startswith("--") else word


def _percentiles(text: str) -> tuple[float, ...]:
    try:
        values = tuple(float(word) for word in text.split(","))
    except ValueError:
        raise Unacceptable(f"--metric-percentiles {text}: give numbers, as 95 or 50,95.") from None
    if not all(0 <= value <= 100 for value in values):
        raise Unacceptable(f"--metric-percentiles {text}: each lies between 0 and 100.")
    return values


def run_bench(bench: Bench, seed: int) -> Run:
    """Return the engine's run of what a command asks for.

    Without a cap the requests are sent at their rate, answered or not. With one, a request that
    finds the cap reached is held back: where the rate is above what the server can do the cap
    alone decides, which is a closed loop; where it is below, the cap hardly ever binds.
    """
    cost = LinearStepCost(0.020, 1e-4, 0.0, 4e-4)
    config = EngineConfig(max_num_seqs=256, max_num_batched_tokens=2048)
    lengths = Lognormal.of_mean(300, 0.6), Lognormal.of_mean(120, 0.7, most_tokens=400)
    at_once = math.isinf(bench.request_rate)
    arrivals = Replay(np.zeros(bench.num_prompts)) if at_once else Poisson(bench.request_rate)
    work = draw(bench.num_prompts, arrivals, *lengths, seed=seed)
    if bench.max_concurrency is None:
        return simulate(work, cost, config, progress=False)
    closed = simulate_closed(bench.max_concurrency, 0.0, work, cost, config, progress=False)
    if bench.request_rate >= len(work) / closed.end_s:
        return closed
    return simulate(work, cost, config, progress=False)


@dataclass(frozen=True)
class Report:
    """What the tool prints: requests in flight, and the sections with their percentiles."""

    server_flag: str
    in_flight: float
    ttft_s: tuple[tuple[float, float], ...]
    tpot_s: tuple[tuple[float, float], ...]

    def percentile(self, section: str, q: float) -> float | None:
        """A section's percentile in seconds, None where it is not printed."""
        return dict(self.ttft_s if section == "ttft" else self.tpot_s).get(q)


def report_of(command: str, case: Any) -> Report:
    """Return what the tool would print for a command on a fresh run of the engine."""
    bench = read_command(command)
    if bench.server_flag:
        return Report(bench.server_flag, 0.0, (), ())
    run = run_bench(bench, case["seed"])
    in_flight = metrics.mean_concurrency(run.requests, run.window()) or 0.0
    samples = {"ttft": run.ttft_s, "tpot": run.tpot_s[~np.isnan(run.tpot_s)]}
    printed = {
        name: tuple((q, float(np.percentile(values, q))) for q in bench.percentiles)
        if name in bench.sections and values.size
        else ()
        for name, values in samples.items()
    }
    return Report("", in_flight, printed["ttft"], printed["tpot"])


@dataclass(frozen=True)
class Reports:
    """What the tool printed, as a kind of value: the exercise measured it itself."""

    expected: str = f"a report of {WANTED} requests in flight, with the P95 of TTFT and of TPOT"
    tolerance: str = f"{plain(100 * _SHARE)} % of the requests in flight, over the whole run"

    def problem(self, value: object) -> str | None:
        """Nothing: it was measured, not given."""
        return None

    def same(self, value: Any, other: Any) -> bool:
        """Whether two reports are one."""
        return bool(value == other)

    def show(self, value: Report) -> str:
        """The report in a line."""
        if value.server_flag:
            return "no report: unrecognized arguments"
        parts = [f"{plain(value.in_flight, 3)} requests in flight on average"]
        for name, section in (("TTFT", value.ttft_s), ("TPOT", value.tpot_s)):
            figures = [f"P{q:g} {plain(seconds, 3)} s" for q, seconds in section]
            parts.append(f"{name}: {', '.join(figures)}" if figures else f"no {name} section")
        return "; ".join(parts)

    def magnitude(self, value: Any) -> str:
        """Nothing: the figures say nothing about the flags."""
        return ""


@dataclass(frozen=True)
class Command:
    """A command line as text, as a kind of value.

    >>> Command().problem(64)
    'It is 64: give the flags as one text, such as "--num-prompts 640".'
    """

    expected: str = 'the flags as one text, such as "--num-prompts 640"'
    tolerance: str = "judged by what the engine shows"

    def problem(self, value: object) -> str | None:
        """Why a value is no command."""
        if isinstance(value, str) and "--" in value:
            return None
        return f"It is {short_repr(value)}: give {self.expected}."

    def same(self, value: Any, other: Any) -> bool:
        """Whether two commands are one text."""
        return bool(value == other)

    def show(self, value: Any) -> str:
        """The text."""
        return str(value)

    def magnitude(self, value: Any) -> str:
        """Nothing: the text is the answer."""
        return ""


def _two_workloads(rng: np.random.Generator) -> list[dict[str, int]]:
    # A fresh installation compiles the engine at its first run, which may take longer than the
    # student's command is given: it shall happen here, outside the time limit.
    run_bench(read_command("--num-prompts 2 --max-concurrency 1"), seed=0)
    return [{"seed": int(seed)} for seed in rng.integers(2**31, size=2)]


def _accept_report(seen: Report, best: Report, case: Any) -> str | None:
    if seen.server_flag:
        return f"The tool refuses the command: unrecognized arguments: {seen.server_flag}."
    if abs(seen.in_flight / WANTED - 1) > _SHARE:
        return (
            f"On average {plain(seen.in_flight, 3)} requests were in flight, and not about "
            f"{WANTED}."
        )
    for section in ("ttft", "tpot"):
        name, printed = section.upper(), seen.ttft_s if section == "ttft" else seen.tpot_s
        if not printed:
            return f"{plain(seen.in_flight, 3)} requests in flight, but no {name} section."
        if seen.percentile(section, 95.0) is None:
            only = ", ".join(f"P{q:g}" for q, _ in printed)
            return f"The {name} section has {only} and no P95."
    return None


def _asks(command: Any, **wanted: Any) -> bool:
    """Whether a command has exactly these settings; False for one that cannot be read."""
    try:
        bench = read_command(command)
    except Unacceptable:
        return False
    return all(getattr(bench, name) == value for name, value in wanted.items())


def _has_a_rate_for_a_cap(command: Any) -> bool:
    return _asks(command, max_concurrency=None, server_flag="") and not _asks(
        command, request_rate=math.inf
    )


def _sends_all_at_once(command: Any) -> bool:
    return _asks(command, max_concurrency=None, server_flag="", request_rate=math.inf)


def _loses_its_sections(command: Any) -> bool:
    try:
        bench = read_command(command)
    except Unacceptable:
        return False
    return not bench.server_flag and not set(bench.sections) & set(_METRICS)


def _takes_a_share(command: Any) -> bool:
    return _asks(command, percentiles=(0.95,))


def _sets_the_server(command: Any) -> bool:
    return any(_asks(command, server_flag=flag) for flag in _SERVER_FLAGS)


_COMMAND = """\
A colleague wants to know what 64 people at a time would feel on a new server, and runs

`vllm bench serve --num-prompts 640 --request-rate 64 --percentile 95`

His slide says “at concurrency 64”, and he wonders why the report has no TTFT and no TPOT section at
all. These flags matter:

| flag | what it sets | if left out |
|---|---|---|
| `--num-prompts N` | how many requests are sent in all | 1000 |
| `--request-rate R` | requests *sent per second*, answered or not | `inf`: all at once |
| `--max-concurrency C` | never more than C requests in flight: the next one is sent when an \
earlier one is done | no limit |
| `--percentile-metrics NAMES` | which metrics get a section: names out of `ttft,tpot,itl,e2el` | \
`ttft,tpot,itl` |
| `--metric-percentiles P` | which percentiles those sections print | `99` |

The tool also takes any unique *beginning* of a flag for that flag, and passes over names of metrics
that it does not know. Mend the command, keeping its 640 prompts: 64 requests in flight (the mean
over the run within 15 %), and the P95 of TTFT and of TPOT in the report. Give everything after
`vllm bench serve` as one text; it is run on the course's engine, with two workloads that you have
not seen."""


EXERCISE = value_exercise(
    "1.5",
    title="The command that did something else",
    question=_COMMAND,
    kind="configure",
    minutes=7,
    difficulty=2,
    reference="--num-prompts 640 --max-concurrency 64 --metric-percentiles 95",
    value=Command(),
    comment='a text with the flags, such as "--num-prompts 640 …"',
    cases=_two_workloads,
    observe=report_of,
    result=Reports(),
    accept=_accept_report,
    describe=lambda case: "640 prompts of a workload that was not shown, on the engine",
    wrong=(
        Wrong(
            "rate-for-concurrency",
            "--num-prompts 640 --request-rate 64 --metric-percentiles 95",
            "64 per *second* is not 64 at a time. An open loop sends whether or not anybody "
            "is answered, so what is in flight is a result: rate × latency (Little's law). "
            "To hold a number in flight there must be a cap.",
            also=_has_a_rate_for_a_cap,
        ),
        Wrong(
            "all-at-once",
            "--num-prompts 64 --metric-percentiles 95",
            "Without a rate and without a cap all prompts are sent in the first instant. Then "
            "TTFT measures the place in that one crowd, and from there on the number in "
            "flight only falls. A load needs a next request for every one that ends.",
            also=_sends_all_at_once,
        ),
        Wrong(
            "beginning-of-another-flag",
            "--num-prompts 640 --max-concurrency 64 --percentile 95",
            "The load is right, the report is empty. `--percentile` is the beginning of "
            "`--percentile-metrics`, so the tool was asked for a metric called “95”, knows "
            "none, and prints no section. Which flag names the percentiles?",
            also=_loses_its_sections,
        ),
        Wrong(
            "server-flag-on-the-client",
            "--num-prompts 640 --max-num-seqs 64 --metric-percentiles 95",
            "`--max-num-seqs` is the *server's* limit: how many requests it runs at once. The "
            "load is made by the client, which has a flag of its own; a queue in front of the "
            "server forms or not depending on both.",
            also=_sets_the_server,
        ),
        Wrong(
            "share-for-percentile",
            "--num-prompts 640 --max-concurrency 64 --metric-percentiles 0.95",
            "The flag takes per cent: 0.95 is P0.95, nearly the *fastest* request of all. The "
            "report looks wonderful, which is why nobody questions it.",
            also=_takes_a_share,
        ),
    ),
    hints=(
        "There are two faults. Which word of the table is “concurrency”, and which flag does "
        "`--percentile` become?",
        "A cap keeps 64 in flight for as long as there are prompts left: each that ends is "
        "followed by the next.",
        "--max-concurrency for the load, --metric-percentiles for the 95.",
    ),
    explanation=(
        "A request rate is an input of an open loop, and concurrency its result; with a cap "
        "it is the other way round. Look at what a tool did, not at what it was told: here "
        "Little's law (throughput × mean E2E) would have shown it at once."
    ),
)
