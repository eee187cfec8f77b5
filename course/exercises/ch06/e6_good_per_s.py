"""Exercise 6.6, From your own results file: reference, wrong answers and judging."""

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
from course.exercises.values import Number, plain
from course.serving.engine import EngineConfig, simulate
from course.serving.pricing import LinearStepCost
from course.serving.results import load_result, write_vllm
from course.serving.workload import Lognormal, Poisson, Workload, draw


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


def failures_are_fast(path, ttft_limit_s, tpot_limit_s):
    """Errors not looked at."""
    import json

    with open(path, encoding="utf-8") as file:
        record = json.load(file)
    good = 0
    for ttft_s, gaps_s in zip(record["ttfts"], record["itls"], strict=True):
        tpot_s = sum(gaps_s) / len(gaps_s) if gaps_s else 0.0
        good += ttft_s <= ttft_limit_s and tpot_s <= tpot_limit_s
    return float(good / record["duration"])


def the_mean_for_everybody(path, ttft_limit_s, tpot_limit_s):
    """All of them if the means are inside, otherwise none."""
    import json

    with open(path, encoding="utf-8") as file:
        record = json.load(file)
    inside = (
        record["mean_ttft_ms"] <= 1000 * ttft_limit_s
        and record["mean_tpot_ms"] <= 1000 * tpot_limit_s
    )
    return float(record["request_throughput"]) if inside else 0.0


def every_single_gap(path, ttft_limit_s, tpot_limit_s):
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


def seconds_taken_for_milliseconds(path, ttft_limit_s, tpot_limit_s):
    """Seconds divided by a thousand once more."""
    import json

    with open(path, encoding="utf-8") as file:
        record = json.load(file)
    good = 0
    for ttft, gaps, error in zip(record["ttfts"], record["itls"], record["errors"], strict=True):
        mean = sum(gaps) / len(gaps) if gaps else 0.0
        good += not error and ttft / 1000 <= ttft_limit_s and mean / 1000 <= tpot_limit_s
    return float(good / record["duration"])


def as_if_independent(path, ttft_limit_s, tpot_limit_s):
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


def without_gaps_left_out(path, ttft_limit_s, tpot_limit_s):
    """Who has no gap has no TPOT, and is not counted."""
    import json

    with open(path, encoding="utf-8") as file:
        record = json.load(file)
    good = 0
    rows = zip(record["ttfts"], record["itls"], record["errors"], strict=True)
    for ttft_s, gaps_s, error in rows:
        if not error and gaps_s and ttft_s <= ttft_limit_s:
            good += sum(gaps_s) / len(gaps_s) <= tpot_limit_s
    return good / record["duration"]


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
        # one answer in ten is a single token: yes or no
        short = work.output_tokens.copy()
        short[::10] = 1
        work = Workload(work.arrival_s, work.prompt_tokens, short)
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


EXERCISE = function_exercise(
    "6.6",
    title="From your own results file",
    question=(
        "A results file says how many requests a second were completed, and not how many kept "
        "*your* promise. Write the few lines that do. They work on a file of your own: call "
        "the function with its path afterwards. (Without one, take those in "
        "`data/example_sweep`.) The check brings files in which some clients hung up."
    ),
    kind="compute",
    minutes=9,
    difficulty=3,
    reference=good_per_s,
    cases=_files,
    result=Number("/s", noun="a rate in requests/s"),
    evidence=_read_by_the_course,
    describe=_describe_file,
    wrong={
        failures_are_fast: (
            "A request that failed stands in the file with a TTFT of 0.0 and no gaps: the best "
            "of all, by your count. Look at `errors` first."
        ),
        the_mean_for_everybody: (
            "You ask whether the *means* are inside the limits, and count all or none. Each "
            "request keeps its promise or does not."
        ),
        every_single_gap: (
            "You ask every single gap to be inside the limit. TPOT is the mean of a request's "
            "gaps; one long gap may be made up for."
        ),
        seconds_taken_for_milliseconds: (
            "The lists are in seconds already (only the statistics whose names end in _ms are "
            "not). Divided by 1000 everybody is inside."
        ),
        without_gaps_left_out: (
            "You leave out the answers without a gap. One token is a whole answer: it has no TPOT, "
            "and so it keeps that limit."
        ),
        as_if_independent: (
            "You multiply two shares, as if a late first token said nothing about the gaps. "
            "Ask both of the *same* request."
        ),
    },
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
)
