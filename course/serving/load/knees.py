"""Where a load curve has its knee, by three definitions, and when it has none; no server is run.

A curve is what a server gave at rising loads. "plateau" and "two_segments" look at the throughput
alone, "slo" at what the users were promised. *No knee* is an answer too: a sweep may not have been
loaded enough, or too much from its first point on, or its points may contradict each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from course.serving._arguments import FloatArray, at_least
from course.serving.load.broken_stick import broken_stick
from course.serving.load.resampling import FEWEST_RUNS, resampled_interval
from course.words import percent, rounded

Method = Literal["plateau", "two_segments", "slo"]

Reason = Literal[
    "found", "too few loads", "no throughput", "contradiction", "saturated", "not loaded enough",
    "no bend",
]  # fmt: skip
"""What a method found: a knee, or why there is none. Decide on this, not on the sentence."""

PLATEAU_SHARE = 0.9
"""The plateau's knee is the load that first brings this share of the plateau's throughput."""

HELD_BAND = 0.05
"""The plateau is made of the points whose throughput is within this share of the highest."""

HELD_SPAN = 1.2
"""Over this factor of load the highest throughput must be held, for the curve to be flat."""

DOUBLING_GAIN = 0.20
"""… or the last doubling of the load must have brought less than this."""

REAL_FALL = 0.10
"""A throughput that falls by this share and later rises above where it was is a contradiction."""

LEAST_LOAD, LARGEST = 1e-30, 1e30
"""No load is smaller or larger, and no throughput larger: beyond them squares are no numbers."""

_TOLD_GAIN = 100.0
"""A gain of more than this many times is not told as per cent."""

_FEWEST_POINTS = {"plateau": 4, "two_segments": 5, "slo": 2}


@dataclass(frozen=True)
class Knee:
    """The answer of one method: the load of the knee, or None and why there is none.

    `throughput` is the curve's at the knee; `between` the two loads that were really run around
    it. `low` and `high` bound the knee with `confidence`, from `runs` runs of every load; they are
    None where `why_no_interval` says why. `reason` is "found", or why there is no knee; `headline`
    says that in a few words ("" where there is one), `sentence` all of it in plain words.
    """

    method: Method
    load: float | None
    throughput: float | None
    between: tuple[float, float] | None
    low: float | None
    high: float | None
    confidence: float
    runs: int
    sentence: str
    reason: Reason
    headline: str = ""
    why_no_interval: str = ""

    @property
    def found(self) -> bool:
        """Whether the curve has such a knee."""
        return self.load is not None


class _Place(NamedTuple):
    """What one method says of one curve: a load and the words for it, or None and why.

    Where there is no knee, `headline` is the reason in a few words and `words` what follows it.
    """

    load: float | None
    words: str
    reason: Reason = "found"
    headline: str = ""


class _Names(NamedTuple):
    """What loads and throughputs are called in a sentence, and what the server is known for.

    `is_full`: whether its last load is known to be beyond what it can do. `most`: a load above
    which none can be a knee.
    """

    load: str
    throughput: str
    is_full: bool = False
    most: float = math.inf

    def of(self, load: float) -> str:
        return f"{bare(float(load))} {self.load}".strip()

    def rate(self, throughput: float) -> str:
        return f"{rounded(float(throughput))} {self.throughput}".strip()


def bare(load: float) -> str:
    """Return a load as people say it: whole ones whole, others with three figures.

    >>> bare(1024.0), bare(70.63), bare(0.5)
    ('1,024', '70.6', '0.500')
    """
    return f"{load:,.0f}" if load == round(load) else rounded(load)


def find_knee(
    loads: npt.ArrayLike,
    throughput: npt.ArrayLike,
    latency: npt.ArrayLike | None = None,
    method: Method = "plateau",
    *,
    limit: float | None = None,
    attainment: npt.ArrayLike | None = None,
    quantile: float = 0.99,
    confidence: float = 0.95,
    load_unit: str = "",
    throughput_unit: str = "a second",
    promise: str = "the promise",
    is_full: bool = False,
    most: float | None = None,
) -> Knee:
    """Return the knee of a load curve by one method, or the reason why it has none.

    `loads`: shape (points,), rising, above 0: users, or requests/s. `throughput`: shape (points,),
    or (runs, points) where every load was run several times; then the means decide, and whole runs
    are resampled for an interval.

    - "plateau": the lowest load that brings 90 % of the plateau's throughput. The plateau is the
      mean of the points within 5 % of the highest.
    - "two_segments": where two straight pieces that fit the throughput best in least squares meet
      (Hudson, 1966).
    - "slo": the highest load up to which the promise holds at every load. Give the `attainment`,
      a share in 0 … 1 that has to be at least `quantile`, or a `latency` with its `limit`; shapes
      as `throughput`. A latency of NaN or infinity breaks its promise.

    Between the loads that were run the curve is taken as straight. The two that look at the
    throughput want to see it flatten: within 5 % of its highest over a fifth more load, or a last
    doubling that brings less than 20 %; or to be told that the server `is_full` at the last load,
    as in an open loop that completes less than it is offered while its waits grow. No knee lies
    above `most`, in such a loop the highest rate that was ever completed. Raises ValueError for
    arrays that do not fit together, for loads outside 1e-30 … 1e30 or a throughput above that.

    >>> users = [1, 5, 25, 50, 100, 150, 200]
    >>> tokens_per_s = [48.4, 199.2, 564.5, 738.8, 777.3, 777.9, 777.0]
    >>> knee = find_knee(users, tokens_per_s, load_unit="users", throughput_unit="tokens/s")
    >>> round(knee.load, 1), knee.between, knee.low
    (44.4, (25.0, 50.0), None)
    >>> find_knee(users[:4], tokens_per_s[:4]).sentence  # doctest: +ELLIPSIS
    'No knee by "plateau": not loaded enough. ...'
    >>> find_knee(users, tokens_per_s, [0.4, 0.4, 0.8, 1.1, 18, 46, 73], "slo", limit=2.0).between
    (50.0, 100.0)
    """
    if method not in get_args(Method):
        raise ValueError(f"method={method!r} is not known; give one of {get_args(Method)}")
    names = _Names(load_unit, throughput_unit, is_full)
    if most is not None:
        names = names._replace(most=at_least("most", most, above=True))
    x = _loads(loads)
    through = _curves("throughput", throughput, x.size)
    if method == "slo":
        judged, locate = _promise(x, latency, limit, attainment, quantile, promise, names)
    else:
        judged = through
        locate = _plateau if method == "plateau" else _two_segments
    locate = _bounded(locate)
    if judged.shape != through.shape:
        raise ValueError(
            f"the promise has shape {judged.shape} but throughput {through.shape}; "
            "give one value a run and load in both"
        )
    fewest = _FEWEST_POINTS[method]
    if x.size < fewest:
        count = "one load is" if x.size == 1 else f"{x.size} different loads are"
        place = _Place(None, f"; this takes {fewest} or more", "too few loads", f"{count} too few")
    else:
        with np.errstate(over="ignore"):  # the mean of absurd latencies may be infinite
            mean = judged.mean(axis=0)
        place = locate(x, mean, names)
    return _with_interval(method, place, x, through, judged, locate, confidence, names)


Locate = Callable[[FloatArray, FloatArray, _Names], _Place]


def _bounded(locate: Locate) -> Locate:
    """The same method, with no knee above the most that was ever completed."""

    def bounded(x: FloatArray, y: FloatArray, names: _Names) -> _Place:
        place = locate(x, y, names)
        if place.load is None or place.load <= names.most:
            return place
        words = f"{place.words}; no more than {names.of(names.most)} were ever completed"
        return place._replace(load=max(names.most, float(x[0])), words=words)

    return bounded


# --- arguments -----------------------------------------------------------------------------------


def _loads(loads: npt.ArrayLike) -> FloatArray:
    x = np.asarray(loads, dtype=np.float64)
    if x.ndim != 1 or x.size == 0:
        raise ValueError(f"loads has shape {x.shape}; give one number a load, in one flat list")
    for index, load in enumerate(x.tolist()):
        at_least(f"loads[{index}]", load, above=True)
        if not LEAST_LOAD <= load <= LARGEST:
            raise ValueError(
                f"loads[{index}]={load:g} is outside {LEAST_LOAD:g} … {LARGEST:g}; "
                "give the loads in another unit"
            )
        if index and load <= x[index - 1]:
            raise ValueError(
                f"loads[{index}]={load:g} does not rise above loads[{index - 1}]={x[index - 1]:g}; "
                "sort the points, and average those of one load"
            )
    return x


def _curves(name: str, values: npt.ArrayLike, points: int, *, hopeless: bool = False) -> FloatArray:
    """Return `values` as (runs, points); NaN becomes infinite if `hopeless`, as of latencies."""
    y = np.atleast_2d(np.asarray(values, dtype=np.float64))
    if y.ndim != 2 or y.shape[1] != points:
        raise ValueError(
            f"{name} has shape {np.shape(values)} but there are {points} loads; "
            "give one value a load, or one row a run"
        )
    if hopeless:
        y = np.where(np.isnan(y), math.inf, y)
    bad = y < 0 if hopeless else ~((y >= 0) & (y <= LARGEST))
    if bad.any():
        run, point = np.argwhere(bad)[0]
        wanted = "a number ≥ 0" if hopeless else f"a finite number from 0 to {LARGEST:g}"
        raise ValueError(f"{name}[{run}, {point}]={y[run, point]} is not {wanted}")
    return y


def _promise(
    x: FloatArray,
    latency: npt.ArrayLike | None,
    limit: float | None,
    attainment: npt.ArrayLike | None,
    quantile: float,
    promise: str,
    names: _Names,
) -> tuple[FloatArray, Locate]:
    """Return how far each point is from breaking the promise (above 0: broken), and the method."""
    if (attainment is None) == (latency is None or limit is None):
        raise ValueError('method="slo" takes attainment=…, or latency=… with limit=…, one of them')
    if attainment is not None:
        share = at_least("quantile", quantile, above=True)
        met = _curves("attainment", attainment, x.size)
        if met.max() > 1 or share > 1:
            raise ValueError("attainment and quantile are shares in 0 … 1, as 0.99")
        return share - met, _breaks(promise)
    assert limit is not None
    bound = at_least("limit", limit, above=True)
    assert latency is not None
    waits = _curves("latency", latency, x.size, hopeless=True)
    with np.errstate(over="ignore"):
        return waits / bound - 1, _breaks(promise)


# --- the three methods ---------------------------------------------------------------------------


def _fault(x: FloatArray, y: FloatArray, names: _Names) -> _Place | None:
    """Return why a throughput curve can have no knee, or None where it can."""
    highest = float(y.max())
    if highest <= 0:
        return _Place(None, "", "no throughput", "the throughput is 0 at every load")
    low = _contradiction(y)
    if low is not None:
        words = (
            f". The throughput falls to {names.rate(y[low])} at {names.of(x[low])} and rises again "
            "beyond where it was: measure these loads again"
        )
        return _Place(None, words, "contradiction", "the points contradict each other")
    if y[0] >= PLATEAU_SHARE * plateau_level(y):
        already = percent(round(y[0] / highest, 3))
        return _saturated(f"{names.of(x[0])} already bring {already} of the most: begin lower")
    if not names.is_full and not is_flat(x, y):
        return _not_loaded(
            f"The throughput still rises at the end: a load of {names.of(x[-1])} brings "
            f"{_gain_words(x, y)} more than half of it: go higher"
        )
    return None


def _saturated(words: str) -> _Place:
    return _Place(None, f". {words}", "saturated", "saturated at the first point")


def _not_loaded(words: str) -> _Place:
    return _Place(None, f". {words}", "not loaded enough", "not loaded enough")


def _contradiction(y: FloatArray) -> int | None:
    """Return a point that lies far below one before it and below one after it that is higher."""
    before = np.maximum.accumulate(y)
    after = np.maximum.accumulate(y[::-1])[::-1]
    dips = (y < (1 - REAL_FALL) * before) & (after > before)
    # `before` is above 0 at a dip
    left = np.divide(y, before, out=np.ones_like(y), where=dips)
    return int(left.argmin()) if dips.any() else None


def plateau_level(throughput: FloatArray) -> float:
    """Return the plateau's throughput: the mean of the points within 5 % of the highest.

    >>> plateau_level(np.array([50.0, 90.0, 99.0, 101.0, 100.0]))
    100.0
    """
    held = throughput >= (1 - HELD_BAND) * throughput.max()
    return float(throughput[held].mean())


def is_flat(loads: FloatArray, throughput: FloatArray) -> bool:
    """Return whether a curve has flattened at its end, or fallen.

    Its highest throughput is held within 5 % while the load grows by a fifth, or the last
    doubling of the load brought less than 20 %.

    >>> is_flat(np.array([1.0, 2.0, 4.0, 8.0]), np.array([10.0, 20.0, 30.0, 33.0]))
    True
    >>> is_flat(np.array([1.0, 2.0, 4.0, 8.0]), np.array([10.0, 20.0, 30.0, 40.0]))
    False
    """
    return _is_held(loads, throughput) or _doubling_gain(loads, throughput) < DOUBLING_GAIN


def _is_held(x: FloatArray, y: FloatArray) -> bool:
    held = x[y >= (1 - HELD_BAND) * y.max()]
    # the rounding of 1.2 may not decide
    return bool(held[-1] >= HELD_SPAN * held[0] * (1 - 1e-9))


def _doubling_gain(x: FloatArray, y: FloatArray) -> float:
    """The gain of throughput over the last doubling; scaled to one where the curve is shorter."""
    start = max(float(x[-1]) / 2, float(x[0]))
    there = float(np.interp(start, x, y))
    if there <= 0:
        return math.inf
    # two loads that differ in their last digit alone may have the ratio 1
    width = math.log(float(x[-1]) / start) or math.ulp(1.0)
    growth = math.log(max(float(y[-1]) / there, 1e-300)) / width
    return math.expm1(min(growth, 50.0) * math.log(2))


def _gain_words(x: FloatArray, y: FloatArray) -> str:
    gain = _doubling_gain(x, y)
    return percent(round(gain, 3)) if gain <= _TOLD_GAIN else "many times"


def _plateau(x: FloatArray, y: FloatArray, names: _Names) -> _Place:
    fault = _fault(x, y, names)
    if fault is not None:
        return fault
    level = plateau_level(y)
    load = _first_reaching(x, y, PLATEAU_SHARE * level)
    words = f"the throughput levels off at {names.rate(level)}"
    if not _is_held(x, y) and names.is_full:
        words = (
            "the server is full at the last load, where less is completed than offered while the "
            f"waits grow; the most seen is {names.rate(level)}"
        )
    elif not _is_held(x, y) and y[-1] == y.max():
        words = (
            "the throughput hardly rises any more (the last doubling of the load brings "
            f"{_gain_words(x, y)}); the most seen is {names.rate(level)}"
        )
    words += f", and {names.of(load)} bring {percent(PLATEAU_SHARE)} of that"
    if y[-1] < (1 - REAL_FALL) * y.max():
        words += f"; at the last load it has fallen again to {names.rate(y[-1])}"
    return _Place(load, words)


def _first_reaching(x: FloatArray, y: FloatArray, level: float) -> float:
    """The lowest load at which the straight pieces between the points reach `level`."""
    index = int((y >= level).argmax())
    share = (level - y[index - 1]) / (y[index] - y[index - 1])
    return float(x[index - 1] + share * (x[index] - x[index - 1]))


def _two_segments(x: FloatArray, y: FloatArray, names: _Names) -> _Place:
    fault = _fault(x, y, names)
    if fault is not None:
        return fault
    load, steep, gentle = broken_stick(x, y)
    if not gentle < steep / 2:
        return _Place(None, f". {_steepness(steep, gentle)}", "no bend", "no bend")
    return _Place(
        load,
        f"two straight pieces fit best where they meet at {names.of(load)}: before it "
        f"{rounded(steep)} {names.throughput} come with each further load of 1, beyond it "
        f"{rounded(gentle)}",
    )


def _steepness(steep: float, gentle: float) -> str:
    """Say of two straight pieces that the second does not flatten."""
    if steep <= 0:
        return "The first of the two straight pieces does not rise"
    if gentle > _TOLD_GAIN * steep:
        return "The second of the two straight pieces is many times as steep as the first"
    share = percent(round(gentle / steep, 3))
    return f"The second of the two straight pieces is {share} as steep as the first"


def _breaks(promise: str) -> Locate:
    """Return the method "slo", for `excess` above 0 where the promise is broken."""

    def locate(x: FloatArray, excess: FloatArray, names: _Names) -> _Place:
        # a limit kept at equality is kept; the rounding of a share may not break it
        broken = excess > 1e-9
        if not broken.any():
            return _not_loaded(f"{promise} still holds at {names.of(x[-1])}, the highest load")
        index = int(broken.argmax())
        if index == 0:
            return _saturated(
                f"{promise} is broken already at {names.of(x[0])}: begin lower, or promise less"
            )
        before = min(float(excess[index - 1]), 0.0)
        share = 0.0 if math.isinf(excess[index]) else -before / (excess[index] - before)
        load = float(x[index - 1] + share * (x[index] - x[index - 1]))
        words = f"{promise} holds up to {names.of(load)}"
        back = [names.of(at) for at in x[index:][~broken[index:]]]
        if back:
            words += f"; that it holds again at {', '.join(back)} is luck, or a sign of noise"
        return _Place(load, words)

    return locate


# --- how sure ------------------------------------------------------------------------------------


def _with_interval(
    method: Method,
    place: _Place,
    x: FloatArray,
    through: FloatArray,
    judged: FloatArray,
    locate: Locate,
    confidence: float,
    names: _Names,
) -> Knee:
    runs = through.shape[0]
    if place.load is None:
        return Knee(
            method, None, None, None, None, None, confidence, runs,
            f'No knee by "{method}": {place.headline}{place.words}.', place.reason, place.headline,
            "there is no knee to bound",
        )  # fmt: skip
    above = int(np.searchsorted(x, place.load, side="left").clip(1, x.size - 1))
    between = (float(x[above - 1]), float(x[above]))
    with np.errstate(over="ignore", invalid="ignore"):  # latencies may be infinite
        found = resampled_interval(
            judged, lambda mean: locate(x, mean, names).load, place.load, confidence
        )
    low = None if found.low is None else max(found.low, float(x[0]))
    high = None if found.high is None else min(found.high, float(x[-1]))
    why = found.reason
    if runs < FEWEST_RUNS:
        times = "only once" if runs == 1 else f"only {runs} times"
        why = f"every load was run {times}; run the sweep {FEWEST_RUNS} times or more, other seeds"
    grid = f"the loads run around it are {bare(between[0])} and {names.of(between[1])}"
    sentence = f'Knee by "{method}" at {names.of(place.load)}: {place.words}; {grid}.'
    if low is not None and high is not None:
        sentence += (
            f" {percent(confidence)} interval from {runs} runs of each load: "
            f"{bare(low)} to {names.of(high)}."
        )
    else:
        sentence += f" No interval: {why}."
    throughput = float(np.interp(place.load, x, through.mean(axis=0)))
    return Knee(
        method, place.load, throughput, between, low, high, confidence, runs, sentence,
        place.reason, why_no_interval=why,
    )  # fmt: skip
