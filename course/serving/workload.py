"""What is asked of an engine: who sends what, and when; how it is served lives elsewhere.

A `Workload` is plain arrays. It is replayed from a trace, or drawn from an arrival process and
length distributions: `draw` puts them together from one seed, in three streams of random numbers,
so that another rate or another seed of one part leaves the other parts as they were.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from course.serving._arguments import (
    LARGEST_TOKENS,
    FloatArray,
    IntArray,
    at_least,
    counts,
    numbers,
    of_kind,
    same_length,
    times,
    whole,
)

Seed = int | np.random.SeedSequence | np.random.Generator


@dataclass(frozen=True, eq=False, init=False)
class Prefixes:
    """What the beginnings of prompts have in common, for engines with a prefix cache.

    Made by `hashed` or `groups`. As the engine reads it: `names`, whole numbers from 0 on, of each
    block of `block_tokens` prompt tokens, those of request i in `names[begin[i] : begin[i + 1]]`;
    or with `block_tokens` 0 one name a request, for its first `shared` tokens.
    """

    names: IntArray
    begin: IntArray
    shared: IntArray
    block_tokens: int

    def __init__(
        self, names: IntArray, begin: IntArray, shared: IntArray, block_tokens: int
    ) -> None:
        for name, column in {"names": names, "begin": begin, "shared": shared}.items():
            column.setflags(write=False)
            object.__setattr__(self, name, column)
        object.__setattr__(self, "block_tokens", block_tokens)

    @classmethod
    def hashed(cls, ids: Sequence[npt.ArrayLike], block_tokens: int = 512) -> Prefixes:
        """Return the prefixes of a trace: for each request the identities of its prompt's blocks.

        Two prompts begin alike as far as their identities are equal, as `hash_ids` of the
        Mooncake traces say (their blocks have 512 tokens). The list may stop early: what it does
        not name is the request's own.

        >>> Prefixes.hashed([[7, 8, 9], [7, 8], []]).names.tolist()
        [0, 1, 2, 0, 1]
        """
        lists = [np.asarray(each, dtype=np.int64).ravel() for each in ids]
        sizes = [each.size for each in lists]
        joined = np.concatenate([np.empty(0, np.int64), *lists])
        return cls(
            names=np.unique(joined, return_inverse=True)[1].astype(np.int64),
            begin=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            shared=np.empty(0, dtype=np.int64),
            block_tokens=whole("block_tokens", block_tokens),
        )

    @classmethod
    def groups(cls, group: npt.ArrayLike, shared_tokens: npt.ArrayLike) -> Prefixes:
        """Return prefixes that are shared by groups, such as one system prompt for each.

        `group`: a whole number a request, -1 for none. `shared_tokens`: how many of its first
        tokens are the group's, one number a request or one for all.

        >>> Prefixes.groups([0, 0, -1], shared_tokens=1000).shared.tolist()
        [1000, 1000, 0]
        """
        chosen = counts("group", group, low=-1)
        shared = counts("shared_tokens", np.broadcast_to(shared_tokens, chosen.shape), low=0)
        return cls(
            names=np.maximum(chosen, 0),
            begin=np.empty(0, dtype=np.int64),
            shared=np.where(chosen < 0, 0, shared),
            block_tokens=0,
        )

    def __len__(self) -> int:
        return int(self.begin.size - 1 if self.block_tokens else self.names.size)

    def rows(self, rows: IntArray) -> Prefixes:
        """Return those of some requests, in the order asked for.

        >>> Prefixes.hashed([[7, 8], [9]]).rows(np.array([1])).names.tolist()
        [2]
        """
        if not self.block_tokens:
            return Prefixes(self.names[rows], self.begin, self.shared[rows], 0)
        sizes = np.diff(self.begin)[rows]
        begin = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        within = np.arange(int(begin[-1])) - np.repeat(begin[:-1], sizes)
        names = self.names[np.repeat(self.begin[:-1][rows], sizes) + within]
        return Prefixes(names, begin, self.shared, self.block_tokens)

    def check(self, prompt_tokens: IntArray) -> None:
        """Raise ValueError unless there is one entry a request that fits its prompt."""
        same_length([("prompt_tokens", prompt_tokens.size), ("prefixes", len(self))])
        if not self.block_tokens:
            return
        sizes, most = np.diff(self.begin), -(-prompt_tokens // self.block_tokens)
        if (sizes > most).any():
            index = int((sizes > most).argmax())
            raise ValueError(
                f"prefixes[{index}] names {sizes[index]} blocks of {self.block_tokens} tokens, but "
                f"prompt_tokens[{index}]={prompt_tokens[index]} has {most[index]}; leave out the "
                "names beyond the prompt, or mend block_tokens"
            )


@dataclass(frozen=True, eq=False, init=False)
class Workload:
    """Requests in order of arrival; one entry a request in each array, copied and read-only.

    `arrival_s`: seconds from 0 on, never decreasing. `prompt_tokens`, `output_tokens`: whole, at
    least 1. Optional, and used only by what says so:
    `predicted_output_tokens` (the order sjf; the true lengths where left out),
    `priority` (the order priority; smaller is more urgent; 0 where left out),
    `cached_prefix_tokens` (how much of the prompt is found computed, said by hand; 0 where left
    out),
    `prefixes` (which prompts begin alike, for engines with a prefix cache; a `Prefixes`),
    `label` (a class such as "chat", for slicing the results).

    Raises ValueError that names the argument, the index and the value.

    >>> work = Workload([0.0, 0.5], prompt_tokens=[100, 20], output_tokens=[3, 1])
    >>> len(work), work.rate_per_s, work.prompt_tokens.sum().item()
    (2, 2.0, 120)
    """

    arrival_s: FloatArray
    prompt_tokens: IntArray
    output_tokens: IntArray
    predicted_output_tokens: IntArray | None = None
    priority: FloatArray | None = None
    cached_prefix_tokens: IntArray | None = None
    label: npt.NDArray[np.str_] | None = None
    prefixes: Prefixes | None = None

    def __init__(
        self,
        arrival_s: npt.ArrayLike,
        prompt_tokens: npt.ArrayLike,
        output_tokens: npt.ArrayLike,
        predicted_output_tokens: npt.ArrayLike | None = None,
        priority: npt.ArrayLike | None = None,
        cached_prefix_tokens: npt.ArrayLike | None = None,
        label: npt.ArrayLike | None = None,
        prefixes: Prefixes | None = None,
    ) -> None:
        columns: dict[str, npt.NDArray[Any]] = {
            "arrival_s": times("arrival_s", arrival_s),
            "prompt_tokens": counts("prompt_tokens", prompt_tokens),
            "output_tokens": counts("output_tokens", output_tokens),
        }
        if predicted_output_tokens is not None:
            name = "predicted_output_tokens"
            columns[name] = counts(name, predicted_output_tokens)
        if priority is not None:
            columns["priority"] = numbers("priority", priority)
        if cached_prefix_tokens is not None:
            name = "cached_prefix_tokens"
            columns[name] = counts(name, cached_prefix_tokens, low=0)
        if label is not None:
            columns["label"] = np.array(label, dtype=np.str_)
            columns["label"].setflags(write=False)
        same_length([(name, column.size) for name, column in columns.items()])
        for name, column in columns.items():
            object.__setattr__(self, name, column)
        of_kind("prefixes", prefixes, Prefixes, "Prefixes.groups([0, 0, -1], 1000)")
        if prefixes is not None:
            prefixes.check(self.prompt_tokens)
            object.__setattr__(self, "prefixes", prefixes)

    def __len__(self) -> int:
        return int(self.arrival_s.size)

    def __repr__(self) -> str:
        return (
            f"Workload({len(self)} requests, {self.rate_per_s:.4g} a second, "
            f"{self.mean_prompt_tokens:.4g} prompt and {self.mean_output_tokens:.4g} output "
            "tokens on average)"
        )

    @property
    def rate_per_s(self) -> float:
        """Arrivals a second between the first and the last; NaN where that cannot be said.

        >>> Workload([1.0, 2.0, 3.0], [5, 5, 5], [1, 1, 1]).rate_per_s
        1.0
        """
        if len(self) < 2 or self.arrival_s[-1] == self.arrival_s[0]:
            return math.nan
        return (len(self) - 1) / float(self.arrival_s[-1] - self.arrival_s[0])

    @property
    def mean_prompt_tokens(self) -> float:
        """The mean prompt, in tokens; NaN without a request."""
        return float(self.prompt_tokens.mean()) if len(self) else math.nan

    @property
    def mean_output_tokens(self) -> float:
        """The mean answer, in tokens; NaN without a request."""
        return float(self.output_tokens.mean()) if len(self) else math.nan

    def scaled(self, rate_per_s: float) -> Workload:
        """Return the same requests in the same pattern, sped up or slowed down to a mean rate.

        All arrival times are multiplied by one factor, so bursts stay bursts and every request
        keeps its lengths. Raises ValueError where the workload has no rate, or where the slowed
        arrivals would no longer be finite.

        >>> Workload([1.0, 2.0, 3.0], [5, 6, 7], [1, 1, 1]).scaled(2.0).arrival_s.tolist()
        [0.5, 1.0, 1.5]
        """
        wanted = at_least("rate_per_s", rate_per_s, above=True)
        if math.isnan(self.rate_per_s):
            raise ValueError(
                "arrival_s has no rate to scale: it needs two requests at different times"
            )
        with np.errstate(over="ignore", invalid="ignore"):
            arrival_s = self.arrival_s * (self.rate_per_s / wanted)
        if not math.isfinite(arrival_s[-1]):
            raise ValueError(f"rate_per_s={rate_per_s!r} is too small: arrivals become infinite")
        arrival_s.setflags(write=False)
        return self._with(arrival_s=arrival_s)

    def first(self, requests: int) -> Workload:
        """Return the first `requests` of them.

        >>> len(Workload([0.0, 1.0], [5, 5], [1, 1]).first(1))
        1
        """
        end = whole("requests", requests, low=0)
        return self.rows(np.arange(min(end, len(self))))

    def sent_at(self, rows: IntArray, arrival_s: FloatArray) -> Workload:
        """Return the requests `rows`, in that order, sent at other times.

        >>> Workload([0.0, 1.0], [5, 6], [1, 1]).sent_at(np.array([1]), [3.0]).prompt_tokens.item()
        6
        """
        return self.rows(rows)._with(arrival_s=times("arrival_s", arrival_s))

    def rows(self, rows: IntArray) -> Workload:
        """Return the requests `rows`, which rise, as a workload of their own.

        >>> Workload([0.0, 1.0, 2.0], [5, 6, 7], [1, 1, 1]).rows(np.array([0, 2])).prompt_tokens
        array([5, 7])
        """
        columns: dict[str, Any] = {
            name: column[rows]
            for name, column in vars(self).items()
            if isinstance(column, np.ndarray)
        }
        for column in columns.values():
            column.setflags(write=False)
        if self.prefixes is not None:
            columns["prefixes"] = self.prefixes.rows(rows)
        return self._with(**columns)

    def _with(self, **columns: Any) -> Workload:
        """Return a copy with clean columns put in, which need no second check."""
        copy: Workload = object.__new__(Workload)
        copy.__dict__.update(self.__dict__)
        copy.__dict__.update(columns)
        return copy


# ======================================================================================= lengths
class Lengths(Protocol):
    """A distribution of token counts."""

    def draw(self, requests: int, generator: np.random.Generator) -> IntArray:
        """Return `requests` whole token counts of at least 1."""
        ...


def _as_tokens(values: FloatArray, most_tokens: int) -> IntArray:
    """Round up to whole token counts in 1 … `most_tokens`."""
    return np.clip(np.ceil(values), 1, most_tokens).astype(np.int64)


@dataclass(frozen=True)
class Fixed:
    """Every length the same.

    >>> Fixed(128).draw(3, np.random.default_rng(0)).tolist()
    [128, 128, 128]
    """

    tokens: int

    def __post_init__(self) -> None:
        whole("tokens", self.tokens, high=LARGEST_TOKENS)

    def draw(self, requests: int, generator: np.random.Generator) -> IntArray:
        """Return `requests` equal token counts."""
        return np.full(requests, self.tokens, dtype=np.int64)


@dataclass(frozen=True)
class Lognormal:
    """ceil(exp(Normal(mu, sigma))) tokens, at most `most_tokens`.

    >>> lengths = Lognormal.of_mean(150.0, sigma=0.7).draw(100_000, np.random.default_rng(0))
    >>> abs(lengths.mean() - 150.5) < 1  # rounding up adds about half a token
    np.True_
    """

    mu: float
    sigma: float
    most_tokens: int = LARGEST_TOKENS

    def __post_init__(self) -> None:
        at_least("mu", self.mu, low=-math.inf)
        at_least("sigma", self.sigma)
        whole("most_tokens", self.most_tokens, high=LARGEST_TOKENS)

    @classmethod
    def of_mean(
        cls, mean_tokens: float, sigma: float, most_tokens: int = LARGEST_TOKENS
    ) -> Lognormal:
        """Return the lognormal with this mean before rounding: mu = ln(mean) − sigma²/2."""
        mean = at_least("mean_tokens", mean_tokens, above=True)
        return cls(math.log(mean) - at_least("sigma", sigma) ** 2 / 2, sigma, most_tokens)

    def draw(self, requests: int, generator: np.random.Generator) -> IntArray:
        """Return `requests` token counts."""
        return _as_tokens(generator.lognormal(self.mu, self.sigma, requests), self.most_tokens)


@dataclass(frozen=True)
class LognormalMixture:
    """One of two lognormals for each request: the first with probability `share`.

    Answers of real chat services have two humps, which one lognormal cannot show.

    >>> two = LognormalMixture(0.7, Lognormal(4.0, 0.6), Lognormal(6.0, 0.1))
    >>> bool((two.draw(1000, np.random.default_rng(0)) > 300).mean() < 0.4)
    True
    """

    share: float
    one: Lognormal
    other: Lognormal

    def __post_init__(self) -> None:
        if at_least("share", self.share) > 1:
            raise ValueError(f"share={self.share!r} is above 1; give a probability in 0 … 1")

    def draw(self, requests: int, generator: np.random.Generator) -> IntArray:
        """Return `requests` token counts."""
        from_one = generator.random(requests) < self.share
        lengths = self.other.draw(requests, generator)
        lengths[from_one] = self.one.draw(int(from_one.sum()), generator)
        return lengths


@dataclass(frozen=True, eq=False, init=False)
class Quantiles:
    """Lengths of a real trace, from its table of quantiles, linear between its rows.

    `percent`: rising, in 0 … 100; `tokens`: never falling, at least 1; lengths below the first or
    above the last row are drawn as that row's.

    >>> table = Quantiles([0, 50, 100], [10, 20, 200])
    >>> lengths = table.draw(10_000, np.random.default_rng(0))
    >>> lengths.min().item() >= 10, lengths.max().item() <= 200
    (True, True)
    """

    percent: FloatArray
    tokens: FloatArray

    def __init__(self, percent: npt.ArrayLike, tokens: npt.ArrayLike) -> None:
        shares, lengths = numbers("percent", percent), numbers("tokens", tokens)
        same_length([("percent", shares.size), ("tokens", lengths.size)])
        if shares.size < 2:
            raise ValueError(f"percent has {shares.size} rows; a table needs two or more")
        for index in range(1, shares.size):
            if not shares[index] > shares[index - 1]:
                raise ValueError(f"percent[{index}]={shares[index]} does not rise; sort the table")
            if lengths[index] < lengths[index - 1]:
                raise ValueError(f"tokens[{index}]={lengths[index]} falls; sort the table")
        if shares[0] < 0 or shares[-1] > 100:
            raise ValueError(f"percent={shares[0]} … {shares[-1]} leaves 0 … 100; give percent")
        if lengths[0] < 1:
            raise ValueError(f"tokens[0]={lengths[0]} is below 1; a length has a token at least")
        object.__setattr__(self, "percent", shares)
        object.__setattr__(self, "tokens", lengths)

    @classmethod
    def of_trace(cls, trace: str, which: str) -> Quantiles:
        """Return the table of a public trace: `which` is "prompt" or "output"."""
        from course.serving import catalog

        table = catalog.length_quantiles(trace, which)
        return cls(table.percent, table.tokens)

    def draw(self, requests: int, generator: np.random.Generator) -> IntArray:
        """Return `requests` token counts."""
        percent = 100.0 * generator.random(requests)
        return _as_tokens(np.interp(percent, self.percent, self.tokens), LARGEST_TOKENS)


# ====================================================================================== arrivals
class Arrivals(Protocol):
    """An arrival process."""

    def draw(self, requests: int, generator: np.random.Generator) -> FloatArray:
        """Return `requests` arrival times in seconds, never falling."""
        ...


@dataclass(frozen=True)
class Constant:
    """One arrival every 1/rate seconds, the first after one gap.

    >>> Constant(4.0).draw(3, np.random.default_rng(0)).tolist()
    [0.25, 0.5, 0.75]
    """

    rate_per_s: float

    def __post_init__(self) -> None:
        at_least("rate_per_s", self.rate_per_s, above=True)

    def draw(self, requests: int, generator: np.random.Generator) -> FloatArray:
        """Return evenly spaced arrival times."""
        return np.arange(1, requests + 1) / self.rate_per_s


@dataclass(frozen=True)
class Poisson:
    """Arrivals that know nothing of each other: gaps are exponential with mean 1/rate.

    >>> float(round(Poisson(8.0).draw(100_000, np.random.default_rng(0))[-1] / 12_500, 1))
    1.0
    """

    rate_per_s: float

    def __post_init__(self) -> None:
        at_least("rate_per_s", self.rate_per_s, above=True)

    def draw(self, requests: int, generator: np.random.Generator) -> FloatArray:
        """Return the arrival times."""
        return np.cumsum(generator.exponential(1.0 / self.rate_per_s, requests))


@dataclass(frozen=True)
class Gamma:
    """Independent gaps from a gamma distribution: their coefficient of variation is 1/√burstiness.

    Burstiness below 1 is burstier than Poisson, 1 is Poisson, above 1 more even (the name and the
    meaning are those of `vllm bench serve --burstiness`).

    >>> gaps_s = np.diff(Gamma(8.0, 0.25).draw(200_000, np.random.default_rng(0)))
    >>> float(round(gaps_s.std() / gaps_s.mean(), 1))
    2.0
    """

    rate_per_s: float
    burstiness: float = 1.0

    def __post_init__(self) -> None:
        at_least("rate_per_s", self.rate_per_s, above=True)
        at_least("burstiness", self.burstiness, above=True)

    def draw(self, requests: int, generator: np.random.Generator) -> FloatArray:
        """Return the arrival times."""
        scale_s = 1.0 / (self.rate_per_s * self.burstiness)
        return np.cumsum(generator.gamma(self.burstiness, scale_s, requests))


@dataclass(frozen=True)
class OnOff:
    """A Poisson process whose rate switches between two values at random (Markov-modulated).

    It stays `mean_on_s` at `on_rate_per_s` and `mean_off_s` at `off_rate_per_s`, each stay
    exponential; it begins in either state with the probability that it is found there.

    >>> bursts = OnOff(on_rate_per_s=20.0, off_rate_per_s=0.0, mean_on_s=5.0, mean_off_s=15.0)
    >>> bursts.rate_per_s
    5.0
    """

    on_rate_per_s: float
    off_rate_per_s: float
    mean_on_s: float
    mean_off_s: float

    def __post_init__(self) -> None:
        at_least("on_rate_per_s", self.on_rate_per_s, above=True)
        at_least("off_rate_per_s", self.off_rate_per_s)
        at_least("mean_on_s", self.mean_on_s, above=True)
        at_least("mean_off_s", self.mean_off_s, above=True)

    @property
    def rate_per_s(self) -> float:
        """The mean rate over a long time."""
        arrivals = self.on_rate_per_s * self.mean_on_s + self.off_rate_per_s * self.mean_off_s
        return arrivals / (self.mean_on_s + self.mean_off_s)

    def draw(self, requests: int, generator: np.random.Generator) -> FloatArray:
        """Return the arrival times: unit-rate arrivals, carried over by the rate's integral."""
        expected = np.cumsum(generator.exponential(1.0, requests))
        on = bool(generator.random() * (self.mean_on_s + self.mean_off_s) < self.mean_on_s)
        ends_s, integral = [0.0], [0.0]
        while requests and integral[-1] <= expected[-1]:
            stays_s = generator.exponential(1.0, 256)
            for stay_s in stays_s:
                mean_s, rate = (
                    (self.mean_on_s, self.on_rate_per_s)
                    if on
                    else (self.mean_off_s, self.off_rate_per_s)
                )
                ends_s.append(ends_s[-1] + stay_s * mean_s)
                integral.append(integral[-1] + stay_s * mean_s * rate)
                on = not on
        # a silent stay repeats a value of the integral: arrivals lie before or after, not in it
        return np.interp(expected, integral, ends_s)


@dataclass(frozen=True)
class DayCycle:
    """A Poisson process whose rate follows the day: mean · (1 + swing · sin(2π·t/period)).

    `swing` in 0 … 1 is the peak's excess over the mean. Time 0 is where the rate is the mean and
    rising.

    >>> day = DayCycle(mean_rate_per_s=2.0, swing=0.8).draw(172_800, np.random.default_rng(0))
    >>> bool((day % 86400 < 43200).mean() > 0.7)  # most come in the half of the day above the mean
    True
    """

    mean_rate_per_s: float
    swing: float = 0.6
    period_s: float = 86_400.0

    def __post_init__(self) -> None:
        at_least("mean_rate_per_s", self.mean_rate_per_s, above=True)
        at_least("period_s", self.period_s, above=True)
        if at_least("swing", self.swing) > 1:
            raise ValueError(f"swing={self.swing!r} is above 1: the rate would be negative")

    def draw(self, requests: int, generator: np.random.Generator) -> FloatArray:
        """Return the arrival times, unit-rate arrivals carried over by the rate's integral."""
        expected = np.cumsum(generator.exponential(1.0, requests)) / self.mean_rate_per_s
        whole_days, rest_s = np.divmod(expected, self.period_s)
        # one period of the integral, fine enough that linear steps between are below a millisecond
        clock_s = np.linspace(0.0, self.period_s, 100_001)
        angle = 2 * np.pi * clock_s / self.period_s
        passed_s = clock_s + self.swing * self.period_s / (2 * np.pi) * (1 - np.cos(angle))
        return np.maximum.accumulate(
            whole_days * self.period_s + np.interp(rest_s, passed_s, clock_s)
        )


@dataclass(frozen=True, eq=False, init=False)
class Replay:
    """Given arrival times, as they are; a trace's, for instance.

    >>> Replay([0.0, 0.3, 0.3]).draw(2, np.random.default_rng(0)).tolist()
    [0.0, 0.3]
    """

    arrival_s: FloatArray

    def __init__(self, arrival_s: npt.ArrayLike) -> None:
        object.__setattr__(self, "arrival_s", times("arrival_s", arrival_s))

    def draw(self, requests: int, generator: np.random.Generator) -> FloatArray:
        """Return the first `requests` arrival times; raise ValueError if there are fewer."""
        if requests > self.arrival_s.size:
            raise ValueError(
                f"requests={requests} is more than the {self.arrival_s.size} of the replay; "
                "ask for fewer"
            )
        return self.arrival_s[:requests].copy()


# ====================================================================================== together
@dataclass(frozen=True)
class RequestClass:
    """One kind of request in a mixture: its share of the arrivals, and its lengths."""

    name: str
    share: float
    prompt: Lengths
    output: Lengths
    priority: float = 0.0

    def __post_init__(self) -> None:
        at_least("share", self.share)
        at_least("priority", self.priority, low=-math.inf)


def _streams(seed: Seed, count: int) -> list[np.random.Generator]:
    """Return `count` independent generators that depend on the seed alone."""
    if isinstance(seed, np.random.Generator):
        return seed.spawn(count)
    sequence = seed if isinstance(seed, np.random.SeedSequence) else None
    if sequence is None:
        sequence = np.random.SeedSequence(whole("seed", seed, low=0))
    children = np.random.SeedSequence(sequence.entropy, spawn_key=sequence.spawn_key).spawn(count)
    return [np.random.default_rng(child) for child in children]


def draw(
    requests: int, arrivals: Arrivals, prompt: Lengths, output: Lengths, *, seed: Seed
) -> Workload:
    """Draw a workload of `requests` requests from an arrival process and two distributions.

    The same seed gives the same workload; another rate keeps every length.

    >>> work = draw(1000, Poisson(8.0), Lognormal(5.5, 0.8), Lognormal(4.76, 0.7), seed=0)
    >>> faster = draw(1000, Poisson(9.0), Lognormal(5.5, 0.8), Lognormal(4.76, 0.7), seed=0)
    >>> bool((work.prompt_tokens == faster.prompt_tokens).all())
    True
    """
    number = whole("requests", requests, low=0)
    for_arrivals, for_prompts, for_outputs = _streams(seed, 3)
    return Workload(
        arrival_s=arrivals.draw(number, for_arrivals),
        prompt_tokens=prompt.draw(number, for_prompts),
        output_tokens=output.draw(number, for_outputs),
    )


def mixture(
    requests: int, arrivals: Arrivals, classes: Sequence[RequestClass], *, seed: Seed
) -> Workload:
    """Draw a workload in which each request belongs to one of several classes.

    The class of each is in `label`, its priority in `priority`. Shares need not add up to 1.
    Raises ValueError where no class has a share.

    >>> chat = RequestClass("chat", 0.9, Fixed(100), Fixed(50))
    >>> book = RequestClass("summary", 0.1, Fixed(4000), Fixed(200), priority=1)
    >>> work = mixture(1000, Poisson(5.0), [chat, book], seed=0)
    >>> bool(abs((work.label == "chat").mean() - 0.9) < 0.03)
    True
    """
    number = whole("requests", requests, low=0)
    shares = np.array([kind.share for kind in classes])
    if not shares.sum() > 0:
        raise ValueError(f"classes={list(classes)!r} have no share; give at least one above 0")
    for_arrivals, for_kinds, for_lengths = _streams(seed, 3)
    which = for_kinds.choice(len(classes), size=number, p=shares / shares.sum())
    prompts, outputs = np.ones(number, np.int64), np.ones(number, np.int64)
    for index, (kind, stream) in enumerate(
        zip(classes, for_lengths.spawn(len(classes)), strict=True)
    ):
        members = which == index
        # drawn for all, so that a class keeps its lengths where another's share changes
        prompts[members] = kind.prompt.draw(number, stream)[members]
        outputs[members] = kind.output.draw(number, stream)[members]
    return Workload(
        arrivals.draw(number, for_arrivals),
        prompts,
        outputs,
        priority=np.array([kind.priority for kind in classes], dtype=np.float64)[which],
        label=np.array([kind.name for kind in classes])[which],
    )


def closed_loop_work(requests: int, prompt: Lengths, output: Lengths, *, seed: Seed) -> Workload:
    """Draw the requests of a closed loop, whose arrivals are decided by the run: all 0 here.

    >>> closed_loop_work(3, Fixed(10), Fixed(5), seed=0).arrival_s.tolist()
    [0.0, 0.0, 0.0]
    """
    number = whole("requests", requests, low=0)
    return draw(number, Replay(np.zeros(number)), prompt, output, seed=seed)
