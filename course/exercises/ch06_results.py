"""Exercises 6.5 and 6.6: the load that a run was really under, and goodput from a results file.

The references and the wrong answers are ordinary functions; each is copied into a notebook as it
stands, so it uses nothing from outside its body but `math` and `np`. `example_runs` makes the
results files of ``data/example_sweep``.
"""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.definition import Wrong
from course.exercises.values import Number, plain
from course.serving.engine import EngineConfig, Run, simulate, simulate_closed
from course.serving.pricing import LinearStepCost, RooflineStepCost
from course.serving.results import load_result, write_vllm
from course.serving.workload import Lognormal, Poisson, closed_loop_work, draw

# --- 6.5 a load that never came -----------------------------------------------------------------


def offered_per_s(asked_per_s: float, start_s: np.ndarray, finish_s: np.ndarray) -> float:
    """Requests/s that the load generator really sent: where this run belongs on a load curve.

    asked_per_s: what the generator was told; start_s: when it sent each request, finish_s: when
    that one was over, seconds from the beginning of the run, in the order of sending. The rate is
    the number of gaps between sends over the time from the first send to the last.
    """
    return float((start_s.size - 1) / (start_s[-1] - start_s[0]))


def what_was_asked(asked_per_s: float, start_s: np.ndarray, finish_s: np.ndarray) -> float:
    """The command line's figure."""
    return asked_per_s


def with_the_drain(asked_per_s: float, start_s: np.ndarray, finish_s: np.ndarray) -> float:
    """Completed requests over the whole run."""
    return float(start_s.size / (finish_s.max() - start_s[0]))


def usual_gap(asked_per_s: float, start_s: np.ndarray, finish_s: np.ndarray) -> float:
    """One over the median gap."""
    return float(1 / np.median(np.diff(start_s)))


def one_at_a_time(asked_per_s: float, start_s: np.ndarray, finish_s: np.ndarray) -> float:
    """One over the mean time that a request took."""
    return float(1 / (finish_s - start_s).mean())


def the_smaller_of_two(asked_per_s: float, start_s: np.ndarray, finish_s: np.ndarray) -> float:
    """What came out, if it is less than what was asked."""
    return float(min(asked_per_s, finish_s.size / (finish_s.max() - finish_s.min())))


class ClientCase(dict[str, Any]):
    """A case's inputs, and behind them how many connections the client had."""

    connections: int


def _clients(rng: np.random.Generator) -> list[ClientCase]:
    """Clients that send as told, and clients whose connections are all in use."""
    cases = []
    server = LinearStepCost(fixed_s=0.010, per_prefill_token_s=4e-5, per_decode_seq_s=1e-4)
    config = EngineConfig(48, 4096)
    lengths = Lognormal.of_mean(300, 0.5), Lognormal.of_mean(60, 0.6)
    for connections, asked in ((0, 14.0), (12, 60.0), (24, 80.0), (0, 22.0)):
        requests = int(rng.integers(400, 600))
        rate = round(asked * float(rng.uniform(0.9, 1.1)), 1)
        if connections:
            work = closed_loop_work(requests, *lengths, seed=rng)
            run = simulate_closed(
                connections, 0.0, work, server, config,
                ramp_s=connections / rate, seed=int(rng.integers(2**31)), progress=False,
            )  # fmt: skip
        else:
            run = simulate(draw(requests, Poisson(rate), *lengths, seed=rng), server, config,
                           progress=False)  # fmt: skip
        order = np.argsort(run.arrival_s, kind="stable")
        first_s = run.arrival_s[order[0]]
        case = ClientCase(
            asked_per_s=rate,
            start_s=(run.arrival_s[order] - first_s).round(6),
            finish_s=(run.finish_s[order] - first_s).round(6),
        )
        case.connections = connections
        cases.append(case)
    return cases


def _describe_client(case: Any) -> str:
    return (
        f"{case['start_s'].size} requests, asked for {plain(case['asked_per_s'], 3)} a second, in "
        f"{plain(float(case['finish_s'].max()), 3)} s"
    )


def _connections(_: Any, case: Any) -> str:
    start_s, finish_s = case["start_s"], case["finish_s"]
    inside = [
        int((start_s <= at).sum() - (finish_s <= at).sum())
        for at in np.linspace(start_s[0], start_s[-1], 200)
    ]
    limit = case.connections
    held = f"the client had {limit} connections" if limit else "the client had no limit"
    return f"{held}; at the most {max(inside)} requests were under way at a time"


# --- 6.6 a results file -------------------------------------------------------------------------


def good_per_s(path: str, ttft_limit_s: float, tpot_limit_s: float) -> float:
    """Goodput in requests/s: completed requests inside both limits, over the run's duration.

    path: a file that vLLM's benchmark saved with --save-detailed, JSON. In it `ttfts` (s), `itls`
    (a list of gaps in s for each request) and `errors` ("" where all went well) have one entry a
    request; `duration` is in s. A request that failed has a TTFT of 0.0 and no gaps. The TPOT of a
    request is the mean of its gaps; one without gaps has no TPOT and keeps that limit.
    """
    import json

    with open(path, encoding="utf-8") as file:
        record = json.load(file)
    good = 0
    for ttft_s, gaps_s, error in zip(
        record["ttfts"], record["itls"], record["errors"], strict=True
    ):
        if error or ttft_s > ttft_limit_s:
            continue
        if not gaps_s or sum(gaps_s) / len(gaps_s) <= tpot_limit_s:
            good += 1
    return float(good / record["duration"])


def failures_are_fast(path: str, ttft_limit_s: float, tpot_limit_s: float) -> float:
    """Errors not looked at."""
    import json

    with open(path, encoding="utf-8") as file:
        record = json.load(file)
    good = 0
    for ttft_s, gaps_s in zip(record["ttfts"], record["itls"], strict=True):
        tpot_s = sum(gaps_s) / len(gaps_s) if gaps_s else 0.0
        good += ttft_s <= ttft_limit_s and tpot_s <= tpot_limit_s
    return float(good / record["duration"])


def the_mean_for_everybody(path: str, ttft_limit_s: float, tpot_limit_s: float) -> float:
    """All of them if the means are inside, otherwise none."""
    import json

    with open(path, encoding="utf-8") as file:
        record = json.load(file)
    inside = (
        record["mean_ttft_ms"] <= 1000 * ttft_limit_s
        and record["mean_tpot_ms"] <= 1000 * tpot_limit_s
    )
    return float(record["request_throughput"]) if inside else 0.0


def every_single_gap(path: str, ttft_limit_s: float, tpot_limit_s: float) -> float:
    """The limit of a mean, asked of each gap."""
    import json

    with open(path, encoding="utf-8") as file:
        record = json.load(file)
    good = 0
    for ttft_s, gaps_s, error in zip(
        record["ttfts"], record["itls"], record["errors"], strict=True
    ):
        good += not error and ttft_s <= ttft_limit_s and max(gaps_s, default=0.0) <= tpot_limit_s
    return float(good / record["duration"])


def taken_for_milliseconds(path: str, ttft_limit_s: float, tpot_limit_s: float) -> float:
    """Seconds divided by a thousand once more."""
    import json

    with open(path, encoding="utf-8") as file:
        record = json.load(file)
    good = 0
    for ttft, gaps, error in zip(record["ttfts"], record["itls"], record["errors"], strict=True):
        mean = sum(gaps) / len(gaps) if gaps else 0.0
        good += not error and ttft / 1000 <= ttft_limit_s and mean / 1000 <= tpot_limit_s
    return float(good / record["duration"])


def as_if_independent(path: str, ttft_limit_s: float, tpot_limit_s: float) -> float:
    """The two shares, multiplied."""
    import json

    with open(path, encoding="utf-8") as file:
        record = json.load(file)
    ttft, tpot, done = 0, 0, 0
    for ttft_s, gaps_s, error in zip(
        record["ttfts"], record["itls"], record["errors"], strict=True
    ):
        if not error:
            done += 1
            ttft += ttft_s <= ttft_limit_s
            tpot += not gaps_s or sum(gaps_s) / len(gaps_s) <= tpot_limit_s
    return float(ttft / done * (tpot / done) * done / record["duration"])


EXAMPLE_RATES_PER_S = (4, 8, 10, 12, 14, 16, 18, 20)
"""Requests/s of the example sweep, one file each."""


def example_runs() -> tuple[Run, ...]:
    """Return the runs behind ``data/example_sweep``, one for each of its rates.

    >>> runs = example_runs()
    >>> len(runs), len(runs[0])
    (8, 240)
    """
    cost = RooflineStepCost("Llama-3.1-8B", "L40S")
    lengths = Lognormal.of_mean(600, 0.6), Lognormal.of_mean(20, 0.6)
    config = EngineConfig(12, 2048, num_kv_blocks=cost.kv_blocks())
    work = draw(240, Poisson(1.0), *lengths, seed=66)
    return tuple(
        simulate(work.scaled(rate), cost, config, progress=False) for rate in EXAMPLE_RATES_PER_S
    )


def write_example(folder: str | Path) -> None:
    """Write the files of ``data/example_sweep`` into a folder; times to the microsecond.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_example(folder)
    ...     print(*sorted(path.name for path in Path(folder).iterdir())[:2])
    rate-04.json rate-08.json
    """
    for rate, run in zip(EXAMPLE_RATES_PER_S, example_runs(), strict=True):
        path = write_vllm(run, Path(folder) / f"rate-{rate:02d}.json", model="Llama-3.1-8B")
        record = _rounded(json.loads(path.read_text(encoding="utf-8")))
        path.write_text(json.dumps(record) + "\n", encoding="utf-8")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, list):
        return [_rounded(part) for part in value]
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    return value


@lru_cache(maxsize=1)
def _folder() -> Path:
    """A folder for the files of the checks; removed when the process ends."""
    folder = tempfile.mkdtemp(prefix="course-results-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _files(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Runs below the knee, near it and beyond it, as files; impatient clients hang up."""
    cases = []
    cost = LinearStepCost(fixed_s=0.015, per_prefill_token_s=6e-5, per_decode_seq_s=4e-4)
    lengths = Lognormal.of_mean(400, 0.7), Lognormal.of_mean(20, 0.7)
    for number, (rate, share) in enumerate(((11.0, 0.8), (14.5, 0.3), (16.5, 0.8))):
        work = draw(300, Poisson(rate), *lengths, seed=rng)
        run = simulate(work, cost, EngineConfig(12, 2048), progress=False)
        path = write_vllm(run, _folder() / f"run-{number}.json")
        record = _hung_up(json.loads(path.read_text(encoding="utf-8")))
        path.write_text(json.dumps(record) + "\n", encoding="utf-8")
        means_s = [sum(gaps) / len(gaps) for gaps in record["itls"] if gaps]
        firsts_s = [time_s for time_s in record["ttfts"] if time_s]
        case = {
            "path": str(path),
            "ttft_limit_s": round(float(np.quantile(firsts_s, 0.7)), 4),
            "tpot_limit_s": round(float(np.quantile(means_s, share)), 4),
        }
        cases.append(case)
    return cases


def _hung_up(record: dict[str, Any], most_s: float = 3.0) -> dict[str, Any]:
    """The record of a client that hangs up after so many seconds, as vLLM's writes it."""
    late = [index for index, took_s in enumerate(record["latencies"]) if took_s > most_s]
    for index in late:
        record["errors"][index] = "timeout"
        record["ttfts"][index], record["itls"][index] = 0.0, []
        record["output_lens"][index], record["latencies"][index] = 0, most_s
    done = [index for index, error in enumerate(record["errors"]) if not error]
    gaps = [record["itls"][index] for index in done]
    record["completed"], record["failed"] = len(done), len(late)
    record["request_throughput"] = len(done) / record["duration"]
    record["mean_ttft_ms"] = 1e3 * float(np.mean([record["ttfts"][index] for index in done]))
    record["mean_tpot_ms"] = 1e3 * float(np.mean([np.mean(one) for one in gaps if one]))
    return record


def _describe_file(case: Any) -> str:
    record = json.loads(Path(case["path"]).read_text(encoding="utf-8"))
    return (
        f"a file with {len(record['ttfts'])} requests, {record['failed']} of them failed; limits "
        f"{plain(case['ttft_limit_s'], 3)} s and {plain(1e3 * case['tpot_limit_s'], 3)} ms"
    )


def _read_by_the_course(_: Any, case: Any) -> str:
    told = load_result(case["path"]).runs[0].summary
    failed = f", {told.failed} failed" if told.failed else ""
    per_s = told.requests_per_s
    return f"the tool itself prints {plain(per_s or 0.0, 3)} requests/s{failed}; it knows no limit"


RESULT_EXERCISES = (
    function_exercise(
        "6.5",
        title="The load that never came",
        question=(
            "A point of a printed load curve stands at 80 requests/s. But a client with 24 "
            "connections cannot have more than 24 requests under way: when all are taken it waits "
            "before it sends the next, and the server never sees 80. Other runs were sent as "
            "asked, up to the luck of random gaps. From the log, work out at which load a run "
            "really belongs."
        ),
        track="stretch",
        kind="audit",
        minutes=6,
        difficulty=2,
        reference=offered_per_s,
        cases=_clients,
        result=Number("/s", noun="a rate in requests/s"),
        evidence=_connections,
        describe=_describe_client,
        wrong=(
            Wrong(
                "what-was-asked",
                what_was_asked,
                "That is what the generator was *told*. Look at start_s: when did it send?",
            ),
            Wrong(
                "drain-counted",
                with_the_drain,
                "You divide by the whole run, until the last answer was over. After the last send "
                "nothing was offered any more; that tail is not part of the sending.",
            ),
            Wrong(
                "median-gap",
                usual_gap,
                "You take the median gap. Random gaps have a median well below their mean (0.69 of "
                "it), and a rate is one over the *mean* gap.",
            ),
            Wrong(
                "one-request-at-a-time",
                one_at_a_time,
                "One over the time that a request takes is the rate of *one* connection. There are "
                "several.",
            ),
            Wrong(
                "finishes-for-sends",
                the_smaller_of_two,
                "You measure what came *out*. The load of a point is what went *in*; beyond the "
                "knee the two differ, and that is what the curve is to show.",
            ),
        ),
        hints=(
            "How many gaps lie between the first send and the last, and how long did they take?",
            "(start_s.size − 1) gaps, in start_s[-1] − start_s[0] seconds.",
            "Divide the one by the other; neither asked_per_s nor finish_s is needed.",
        ),
        explanation=(
            "`python -m course knee` does this with every run, moves the point, and says so. "
            "Without it two runs, “60” and “80” requests/s, may be the same run twice."
        ),
    ),
    function_exercise(
        "6.6",
        title="From your own results file",
        question=(
            "A results file says how many requests a second were completed, and not how many kept "
            "*your* promise. Write the few lines that do. They work on a file of your own: call "
            "the function with its path afterwards. (Without one, take those in "
            "`data/example_sweep`.) The check brings files in which some clients hung up."
        ),
        track="stretch",
        kind="compute",
        minutes=9,
        difficulty=3,
        reference=good_per_s,
        cases=_files,
        result=Number("/s", noun="a rate in requests/s"),
        evidence=_read_by_the_course,
        describe=_describe_file,
        wrong=(
            Wrong(
                "failures-are-fast",
                failures_are_fast,
                "A request that failed stands in the file with a TTFT of 0.0 and no gaps: the best "
                "of all, by your count. Look at `errors` first.",
            ),
            Wrong(
                "the-mean-for-everybody",
                the_mean_for_everybody,
                "You ask whether the *means* are inside the limits, and count all or none. Each "
                "request keeps its promise or does not.",
            ),
            Wrong(
                "every-single-gap",
                every_single_gap,
                "You ask every single gap to be inside the limit. TPOT is the mean of a request's "
                "gaps; one long gap may be made up for.",
            ),
            Wrong(
                "seconds-taken-for-milliseconds",
                taken_for_milliseconds,
                "The lists are in seconds already (only the statistics whose names end in _ms are "
                "not). Divided by 1000 everybody is inside.",
            ),
            Wrong(
                "as-if-independent",
                as_if_independent,
                "You multiply two shares, as if a late first token said nothing about the gaps. "
                "Ask both of the *same* request.",
            ),
        ),
        hints=(
            "`zip(record['ttfts'], record['itls'], record['errors'])` goes through the requests.",
            "Skip a request with an error, then one whose TTFT is too long; then the mean of its "
            "gaps, if it has any.",
            "The number that is left, over record['duration'].",
        ),
        explanation=(
            "`load_result(path)` reads this and five other tools' layouts and finds what is wrong "
            "with a file; `python -m course knee FILES --slo-ttft 1` makes the curve of several."
        ),
    ),
)

__all__ = ["RESULT_EXERCISES", "example_runs", "write_example"]
