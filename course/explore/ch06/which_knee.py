"""The which-knee explorer: which curve and how much of it, which promise; no knee is found here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from course.explore.ch06.servers import BLOCK, BUDGET, SEATS, SERVERS, TraceTraffic, step_cost
from course.figures.ch06.which_knee import Answer, Limit, WhichKnee, WhichKneePicture
from course.serving.engine import EngineConfig
from course.serving.load import (
    Knee,
    MeasuredSweep,
    Method,
    Scenario,
    Sweep,
    bare,
    broken_stick,
    catalogue_sweeps,
    find_knee,
    plateau_level,
    sweep,
)
from course.serving.requests import SLO
from course.ui import Explorer, Prediction, Preset, Table, choice, count, slider, stops
from course.words import percent, seconds

SERVER: Final = "Llama-3.1-8B on one H100"
LOADS: Final = (4, 7, 10, 13, 15, 17, 18, 19, 20, 21, 22, 24, 27, 32)
"""Requests/s at which the simulated chat is run, closer together where its curve bends."""

SEEDS: Final = 5
REQUESTS: Final = 3200
_QUANTILE = 0.99
_SIMULATED = "simulated"

# How a measured sweep tells the two latencies, the strictest statistic first.
_FIRST_TOKEN = ("P99 TTFT", "P95 TTFT", "mean TTFT")
_FURTHER = ("P99 ITL", "P95 TPOT", "mean ITL")


class Measured(NamedTuple):
    """What one measured sweep ran: model, precision, cards, tokens in and out, and who says so."""

    model: str
    precision: str
    n_gpus: int
    gpu: str
    prompt_tokens: int
    output_tokens: int
    source: str

    @property
    def name(self) -> str:
        """What `measured_sweeps` calls it."""
        cards = f"{self.n_gpus} × {self.gpu}" if self.n_gpus > 1 else self.gpu
        return (
            f"{self.model} in {self.precision} on {cards}, {self.prompt_tokens} tokens in and "
            f"{self.output_tokens} out ({self.source})"
        )

    @property
    def _cards(self) -> str:
        card = self.gpu.split("-")[0]
        return f"{self.n_gpus} × {card}" if self.n_gpus > 1 else card

    @property
    def short(self) -> str:
        """Its name without what all of them share.

        >>> Measured("A", "fp8", 2, "H100-80GB-SXM", 200, 100, "nim-1.5").short
        'A in fp8, 2 × H100, 200 in and 100 out'
        """
        return (
            f"{self.model} in {self.precision}, {self._cards}, {self.prompt_tokens} in and "
            f"{self.output_tokens} out"
        )

    @property
    def option(self) -> str:
        """Its name as a narrow list has it: what tells it from its neighbours comes first.

        >>> Measured("A-3.1-8B", "fp8", 2, "H100-80GB-SXM", 200, 100, "nim-1.5").option
        '200→100 tokens, A-8B fp8, 2×H100'
        """
        parts = self.model.split("-")
        model = f"{parts[0]}-{parts[-1]}"
        return (
            f"{self.prompt_tokens}→{self.output_tokens} tokens, {model} {self.precision}, "
            f"{self._cards.replace(' ', '')}"
        )


_MEASURED: Final = (
    Measured("Qwen3-8B", "bf16", 1, "H100-80GB-SXM", 2048, 2048, "silybench"),
    Measured("Qwen3-8B", "bf16", 1, "H100-80GB-SXM", 8192, 512, "silybench"),
    Measured("Qwen3-8B", "bf16", 1, "H100-80GB-SXM", 128, 1024, "silybench"),
    Measured("Qwen3-8B", "bf16", 1, "H100-80GB-SXM", 128, 128, "silybench"),
    Measured("Qwen3-8B", "fp8", 1, "H100-80GB-SXM", 1024, 128, "silybench"),
    Measured("Qwen3-8B", "fp8", 1, "H100-80GB-SXM", 128, 1024, "silybench"),
    Measured("Qwen3-8B", "fp8", 1, "H100-80GB-SXM", 128, 128, "silybench"),
    Measured("Llama-3.3-70B", "fp8", 2, "H100-80GB-SXM", 5000, 500, "nim-1.5"),
    Measured("Llama-3.3-70B", "fp8", 2, "H100-80GB-SXM", 1000, 1000, "nim-1.5"),
    Measured("Llama-3.3-70B", "fp8", 2, "H100-80GB-SXM", 500, 2000, "nim-1.5"),
    Measured("Llama-3.3-70B", "fp8", 2, "H100-80GB-SXM", 200, 200, "nim-1.5"),
    Measured("Nemotron-Nano-30B", "fp8", 2, "B200-180GB-SXM", 2048, 512, "vultr-cookbook"),
)
"""The sweeps of the catalogue with six loads or more."""

MEASURED: Final = {sweep.name: sweep for sweep in _MEASURED}
H100: Final = _MEASURED[0].name
TWO_GPUS: Final = _MEASURED[7].name
RISING: Final = _MEASURED[10].name


_CURVES: Final = {
    "simulated chat (Llama-3.1-8B, one H100)": _SIMULATED,
    **{sweep.option: sweep.name for sweep in _MEASURED},
}
"""What is read → the name of the sweep."""


@dataclass(frozen=True)
class WhichKneeParameters:
    """The curve, which of its points are used, how often each was run, and the promise."""

    curve: str = choice(
        _SIMULATED, _CURVES, label="Curve",
        help="Simulated here; or measured on real GPUs by others, by the tokens of a prompt → of "
        "an answer (data/serving_points.csv)",
    )  # fmt: skip
    runs: int = stops(
        5, (1, 3, 5), label="Runs of each load",
        help="Seeds of the simulated curve; five give each knee an interval. The measured ones "
        "were run once",
    )  # fmt: skip
    leave_low: int = count(
        0, 0, 10, label="Leave out the lowest", unit="loads",
        help="As if the sweep had begun higher",
    )  # fmt: skip
    leave_high: int = count(
        0, 0, 10, label="Leave out the highest", unit="loads",
        help="As if the sweep had ended sooner",
    )  # fmt: skip
    ttft_limit_s: float = slider(
        1.0, 0.1, 5.0, 0.1, label="Promise: first token within", unit="s",
        help="Kept by 99 % of the requests, or by whatever statistic the sweep tells",
    )  # fmt: skip
    token_limit_ms: float = slider(
        30.0, 5.0, 200.0, 1.0, label="Promise: each further token within", unit="ms",
        help="Kept by 99 % of the requests, or by whatever statistic the sweep tells",
    )  # fmt: skip


# --- one curve, however it came about ------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Curve:
    """Loads of shape (points,), and for each run a row of throughputs and of two latencies."""

    title: str
    load_unit: str
    loads: np.ndarray
    throughput: np.ndarray
    latencies: Mapping[str, np.ndarray]
    source: Sweep | MeasuredSweep


@lru_cache(maxsize=1)
def chat() -> Sweep:
    """Return the simulated chat, every load with every seed."""
    cost = step_cost(*SERVERS[SERVER])
    assert cost is not None
    blocks = cost.kv_blocks(BLOCK)
    scenario = Scenario(
        cost, TraceTraffic(), EngineConfig(SEATS, BUDGET, num_kv_blocks=blocks, block_size=BLOCK),
        requests=REQUESTS,
    )  # fmt: skip
    return sweep(scenario, LOADS, range(SEEDS), progress=False)


@lru_cache(maxsize=32)
def _curve(name: str, runs: int) -> _Curve:
    if name == _SIMULATED:
        swept = chat()
        latencies = {
            "P99 TTFT": swept.column("ttft_p99_s")[:runs],
            "P99 TPOT": swept.column("tpot_p99_s")[:runs],
        }
        return _Curve(
            f"Simulated chat, {SERVER}", "requests/s", np.array(swept.loads),
            swept.column("output_tokens_per_s")[:runs], latencies, swept,
        )  # fmt: skip
    measured = next(s for s in catalogue_sweeps() if s.name == name)
    told = measured.latencies
    first = next((n for n in _FIRST_TOKEN if n in told), None)
    # One statistic of its gaps stands for all: a median would be the promise of every second token.
    further = next(n for n in ("median ITL", *_FURTHER) if n in told)
    chosen = {n: told[n] for n in (first, further) if n is not None}
    return _Curve(
        MEASURED[name].short,
        measured.load_unit,
        measured.loads,
        measured.throughput,
        chosen,
        measured,
    )


def _used(points: int, leave_low: int, leave_high: int) -> slice:
    """The points that are used: one is always left."""
    first = min(leave_low, points - 1)
    return slice(first, max(points - leave_high, first + 1))


@lru_cache(maxsize=256)
def _throughput_knee(name: str, runs: int, low: int, high: int, method: Method) -> Knee:
    curve = _curve(name, runs)
    used = _used(curve.loads.size, low, high)
    return find_knee(
        curve.loads[used], curve.throughput[:, used], method=method, load_unit=curve.load_unit,
        throughput_unit="output tokens/s",
    )  # fmt: skip


@lru_cache(maxsize=256)
def _slo_knee(p: WhichKneeParameters) -> Knee:
    """By attainment where every request is known, otherwise by the limit that breaks first."""
    curve = _curve(p.curve, p.runs)
    used = _used(curve.loads.size, p.leave_low, p.leave_high)
    loads, throughput = curve.loads[used], curve.throughput[:, used]
    if isinstance(curve.source, Sweep):
        slo = SLO(ttft_s=p.ttft_limit_s, tpot_s=p.token_limit_ms / 1e3, quantile=_QUANTILE)
        return find_knee(
            loads, throughput, method="slo", quantile=_QUANTILE, load_unit=curve.load_unit,
            attainment=curve.source.attainment(slo)[: p.runs, used], promise="the SLO",
        )  # fmt: skip
    limits = zip(curve.latencies, _limits(p, curve), strict=True)
    found = [
        find_knee(
            loads, throughput, curve.latencies[name][:, used], "slo", limit=limit_s,
            load_unit=curve.load_unit, promise=f"{name} ≤\u00a0{seconds(limit_s)}",
        )
        for name, limit_s in limits
    ]  # fmt: skip
    hopeless = [knee for knee in found if knee.reason == "saturated"]
    broken = [knee for knee in found if knee.load is not None]
    if hopeless or not broken:
        return (hopeless or found)[0]
    return min(broken, key=lambda knee: knee.load or 0.0)


def _limits(p: WhichKneeParameters, curve: _Curve) -> list[float]:
    """The limit of each latency that the curve tells, in its order."""
    return [
        p.ttft_limit_s if "TTFT" in name else p.token_limit_ms / 1e3 for name in curve.latencies
    ]


# --- the result ----------------------------------------------------------------------------------


def _which_knee(p: WhichKneeParameters) -> WhichKnee:
    curve = _curve(p.curve, p.runs)
    used = _used(curve.loads.size, p.leave_low, p.leave_high)
    plateau = _throughput_knee(p.curve, p.runs, p.leave_low, p.leave_high, "plateau")
    sticks = _throughput_knee(p.curve, p.runs, p.leave_low, p.leave_high, "two_segments")
    loads, mean = curve.loads[used], curve.throughput[:, used].mean(axis=0)
    return WhichKnee(
        title=curve.title,
        measured=isinstance(curve.source, MeasuredSweep),
        load_unit=curve.load_unit,
        runs=int(curve.throughput.shape[0]),
        loads=curve.loads,
        throughput=curve.throughput,
        first=used.start,
        last=used.stop - 1,
        limits=tuple(
            Limit(name, limit_s, values)
            for (name, values), limit_s in zip(
                curve.latencies.items(), _limits(p, curve), strict=True
            )
        ),
        slo=_answer(_slo_knee(p)),
        plateau=_answer(plateau),
        two_segments=_answer(sticks),
        plateau_level=plateau_level(mean) if plateau.found else None,
        stick=_stick(loads, mean) if sticks.found else None,
    )


def _answer(knee: Knee) -> Answer:
    band = None if knee.low is None or knee.high is None else (knee.low, knee.high)
    return Answer(knee.load, knee.throughput, band, knee.headline, knee.sentence)


def _stick(loads: np.ndarray, mean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The corners (loads, throughputs) of the two straight pieces that fit best."""
    bend, steep, gentle = broken_stick(loads, mean)
    x = np.array([loads[0], bend, loads[-1]])
    shape = np.where(loads < bend, steep, gentle) * (loads - bend)
    top = float((mean - shape).mean())
    return x, np.array([top - steep * (bend - x[0]), top, top + gentle * (x[2] - bend)])


# --- words ---------------------------------------------------------------------------------------


def _promise(r: WhichKnee) -> str:
    return " and ".join(f"{limit.name} ≤\u00a0{seconds(limit.limit_s)}" for limit in r.limits)


def _words(r: WhichKnee) -> str:
    points = r.last - r.first + 1
    runs = "" if r.measured else ", each run once" if r.runs == 1 else f", each run {r.runs} times"
    head = (
        f"{r.title}: {points} load{'' if points == 1 else 's'}{runs}. "
        f"By the SLO ({_promise(r)}) {_says(r, r.slo)}; by the plateau {_says(r, r.plateau)}; by "
        f"two straight pieces {_says(r, r.two_segments)}."
    )
    return f"{head}{_price_words(r)}{_interval_words(r)}"


def _says(r: WhichKnee, answer: Answer) -> str:
    if answer.load is None:
        return f"there is no knee ({answer.why_not})"
    band = ""
    if answer.band is not None:
        low, high = answer.band
        band = f", 95\u00a0% interval {bare(round(low, 3))} to {bare(round(high, 3))}"
    return f"the knee is at {bare(answer.load)} {r.load_unit}{band}"


def _price_words(r: WhichKnee) -> str:
    """What the users get at the plateau's knee: why that one is not the one to plan with."""
    if r.plateau.load is None or not r.limits:
        return ""
    told = [
        f"a {limit.name} of {seconds(r.latency_at(limit, r.plateau.load))}" for limit in r.limits
    ]
    words = f" At the plateau's knee the users get {' and '.join(told)}"
    if r.slo.load is not None and r.slo.throughput is not None and r.plateau.throughput:
        gain = r.plateau.throughput / r.slo.throughput - 1
        if gain > 0.005:
            words += (
                f", for {percent(round(gain, 2))} more tokens/s than at the highest load inside "
                "the SLO"
            )
    return f"{words}."


def _interval_words(r: WhichKnee) -> str:
    if r.runs >= 5 or not any(a.load for a in (r.slo, r.plateau, r.two_segments)):
        return ""
    if r.measured:
        return " The sweep was run once, so no knee has an interval."
    return " No knee has an interval: that takes five runs of each load."


def _tables(r: WhichKnee) -> list[Table]:
    parts = {"output_tokens_per_s": r.throughput} | {
        f"{limit.name} (s)": limit.values_s for limit in r.limits
    }
    point = np.arange(r.loads.size)
    shared = {
        "load": r.loads, "unit": r.load_unit, "used": (point >= r.first) & (point <= r.last),
    }  # fmt: skip
    return [
        {name: values[run] for name, values in parts.items()} | {"run": run} | shared
        for run in range(r.runs)
    ]


def _question(r: WhichKnee) -> str:
    return (
        f"{r.title}. Promised: {_promise(r)}. Where on this curve, in {r.load_unit}, is the "
        "highest load that you would promise somebody?"
    )


which_knee = Explorer(
    call="explore.which_knee",
    title="Which knee? Three answers to one curve",
    parameters=WhichKneeParameters,
    compute=_which_knee,
    drawing=WhichKneePicture,
    narrate=_words,
    alt=(
        "Left, the throughput over the load with its plateau as a level line and the two straight "
        "pieces that fit it best; below it, one row for each method with its knee and its "
        "interval, or the words why there is none. Right, two latencies over the load with the "
        "limits that were promised. Points that are left out are pale."
    ),
    presets=(
        Preset(
            "Simulated chat",
            "The chat of the ramp, each of fourteen loads run with five seeds. Promised this time: "
            "30 ms a token, 33 tokens a second.",
            "Three methods, three loads. Which would you put into a contract?",
            {"curve": _SIMULATED, "runs": 5},
        ),
        Preset(
            "Measured: H100, Qwen3-8B",
            "A real H100 with Qwen3-8B, 2,048 tokens in and 2,048 out, from 1 to 512 users.",
            "After the SLO is broken the throughput still climbs by more than a third. What else "
            "climbs, and by how much?",
            {"curve": H100, "ttft_limit_s": 2.0, "token_limit_ms": 50.0},
        ),
        Preset(
            "Measured: Llama-3.3-70B on two GPUs",
            "5,000 tokens in and 500 out on two H100s: 565 tokens/s with 25 users, 777 with 100 as "
            "well as with 200.",
            "Which of the two limits breaks first here, and what would you change about the "
            "server to move it?",
            {"curve": TWO_GPUS, "ttft_limit_s": 1.0, "token_limit_ms": 50.0},
        ),
        Preset(
            "Never flattens",
            "The same two GPUs with short requests, up to 250 users: whoever ran the sweep stopped "
            "while the throughput was still climbing.",
            "Two methods decline to answer. Why is that better than the last point?",
            {"curve": RISING, "ttft_limit_s": 1.0, "token_limit_ms": 50.0},
        ),
        Preset(
            "Saturated at the first point",
            "The simulated chat again, but somebody who was in a hurry began at 21 requests/s.",
            "Every point lies on the plateau and outside the SLO. What does the sweep tell you?",
            {"curve": _SIMULATED, "leave_low": 9, "leave_high": 0},
        ),
    ),
    tables=_tables,
    prediction=Prediction(
        question=_question,
        unit=lambda r: r.load_unit,
        answer=lambda r: r.slo.load,
        mark=lambda r, guess: (guess, r.throughput_at(guess)),
    ),
    idle=lambda p: () if p.curve == _SIMULATED else ("runs",),
)
