"""Curves through measured load levels, and their knees; the levels are read elsewhere.

A load that was never offered is no point of a curve: where the load generator was saturated the
point stands at what it really offered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from course.serving import catalog
from course.serving._arguments import FloatArray, at_least
from course.serving.load.knees import Knee, Method, find_knee
from course.serving.load.rows import OPEN, LoadRow, quantile_of, rows_of_points
from course.words import rounded, seconds

SAME_LOAD = 0.02
"""Loads nearer than this that were not meant to differ so little are one load, and averaged."""

FULL_SHARE = 0.95
"""An open loop that completes less than this share of what it was offered may be full …"""

FULL_WAIT = 3.0
"""… and is, where a latency has grown by this factor over that of the lower loads."""

SAME_LENGTHS = 0.2
"""Runs whose prompts or answers differ by more than this share are not of one curve."""

FEWEST_LOADS = 6
"""A sweep of the catalogue that is worth a knee has at least so many different loads."""


@dataclass(frozen=True, eq=False)
class MeasuredSweep:
    """One curve of a real server. Shapes (points,) and (runs, points).

    `loads` as offered, in `load_unit`; `meant` what the client was told; `throughput` in
    `throughput_unit`; `latencies` in seconds by names such as "P99 TTFT", NaN where a run does not
    tell it, of the finished requests; `failed_share` are the others, NaN where not told.
    `warnings`: what is wrong with single points.
    """

    name: str
    load_unit: str
    loads: FloatArray
    meant: FloatArray
    throughput: FloatArray
    throughput_unit: str
    requests_per_s: FloatArray
    in_system: FloatArray
    failed_share: FloatArray
    latencies: dict[str, FloatArray]
    warnings: tuple[str, ...] = ()

    @property
    def runs(self) -> int:
        """How often every load was run."""
        return int(self.throughput.shape[0])

    @property
    def is_full(self) -> bool:
        """Whether the last load of an open loop is more than the server can do.

        Less was completed than the client meant to offer, and a latency is several times that of
        the lower loads: a slow client alone would leave the server's latencies small.
        """
        if self.load_unit != OPEN or self.loads.size < 2:
            return False
        done = float(self.requests_per_s[:, -1].mean())
        if not done < FULL_SHARE * float(self.meant[-1]):
            return False
        for name in _by_wait(self.latencies):
            waits = self.latencies[name].mean(axis=0)
            if np.isfinite(waits).all() and waits[:-1].min() > 0:
                return bool(waits[-1] >= FULL_WAIT * waits[:-1].min())
        return False

    @property
    def most_completed(self) -> float | None:
        """The highest rate that an open loop ever completed; None for a closed one."""
        done = self.requests_per_s.mean(axis=0)
        if self.load_unit != OPEN or np.isnan(done).any() or not done.max() > 0:
            return None
        return float(done.max())

    def knee(self, method: Method) -> Knee:
        """Return the knee of the throughput, "plateau" or "two_segments"."""
        return find_knee(
            self.loads, self.throughput, method=method,
            load_unit=self.load_unit, throughput_unit=self.throughput_unit,
            is_full=self.is_full, most=self.most_completed,
        )  # fmt: skip

    def slo_knee(self, limits: Mapping[str, float]) -> Knee:
        """Return the highest load that keeps all `limits`, seconds by the name of a latency.

        The strictest limit decides. Failed requests are misses: where 2 % failed no P99 is kept.
        Raises ValueError for no limit, and for one whose latency the
        sweep does not have.
        """
        if not limits:
            raise ValueError("limits is empty; give one, as {'P99 TTFT': 2.0}")
        found = [self._limit_knee(name, limit_s) for name, limit_s in limits.items()]
        hopeless = [k for k in found if k.reason == "saturated"]
        if hopeless:
            return hopeless[0]
        broken = [knee for knee in found if knee.load is not None]
        return min(broken, key=lambda knee: knee.load or 0.0) if broken else found[0]

    def _limit_knee(self, name: str, limit_s: float) -> Knee:
        at_least(f"limits[{name!r}]", limit_s, above=True)
        if name not in self.latencies:
            known = ", ".join(self.latencies) or "none at all"
            raise ValueError(f"limits[{name!r}]: this sweep does not tell it; it has {known}")
        return find_knee(
            self.loads, self.throughput, self._with_misses(name), "slo", limit=limit_s,
            load_unit=self.load_unit, throughput_unit=self.throughput_unit,
            promise=f"{name} ≤ {seconds(limit_s)}",
            most=self.most_completed,
        )  # fmt: skip

    def _with_misses(self, name: str) -> FloatArray:
        """A latency with the failed requests behind the others, at +∞."""
        share = quantile_of(name)
        if share is None:
            return self.latencies[name]
        return np.where(self.failed_share > 1 - share, np.inf, self.latencies[name])


def measured_sweeps(rows: Iterable[LoadRow]) -> tuple[MeasuredSweep, ...]:
    """Return one curve for each group of rows with one unit of load and the same lengths.

    The same loads run several times give several runs, where all of them were run equally often;
    otherwise their mean stands, and a warning says so.

    >>> rows = [LoadRow("a server", f"line {n}", "users", n, n, 10.0 * n, None) for n in (2, 1, 4)]
    >>> found = measured_sweeps(rows)[0]
    >>> found.loads.tolist(), found.throughput.tolist()
    ([1.0, 2.0, 4.0], [[10.0, 20.0, 40.0]])
    """
    groups: list[list[LoadRow]] = []
    for row in rows:
        home = next((group for group in groups if _same_curve(group[0], row)), None)
        if home is None:
            groups.append([row])
        else:
            home.append(row)
    return tuple(_sweep(group, _name(group, groups)) for group in groups)


def catalogue_sweeps(fewest_loads: int = FEWEST_LOADS) -> tuple[MeasuredSweep, ...]:
    """Return the closed-loop sweeps of the catalogue with a recorded throughput.

    Those whose users took at least `fewest_loads` different numbers, by source.

    >>> len(catalogue_sweeps())
    12
    """
    found = measured_sweeps(rows_of_points(catalog.measured_points(kind="sweep")))
    return tuple(sweep for sweep in found if np.unique(sweep.meant).size >= fewest_loads)


def _by_wait(latencies: Mapping[str, FloatArray]) -> list[str]:
    """The latencies in the order in which they tell of a queue: TTFT first, its tail first."""
    kinds = {"TTFT": 0, "E2E": 1, "ITL": 2, "TPOT": 3}

    def key(name: str) -> tuple[int, float]:
        return kinds.get(name.split()[-1], 4), -(quantile_of(name) or 0.0)

    return sorted(latencies, key=key)


def _same_curve(one: LoadRow, other: LoadRow) -> bool:
    if one.group != other.group or one.unit != other.unit:
        return False
    pairs = (
        (one.prompt_tokens, other.prompt_tokens),
        (one.output_tokens, other.output_tokens),
    )
    return all(a is None or b is None or abs(a - b) <= SAME_LENGTHS * max(a, b) for a, b in pairs)


def _name(group: Sequence[LoadRow], groups: Sequence[Sequence[LoadRow]]) -> str:
    """The group's name, with what tells it from another of the same name."""
    head = group[0]
    if sum(other[0].group == head.group for other in groups) == 1:
        return head.group
    tokens = (head.prompt_tokens, head.output_tokens)
    lengths = "/".join("?" if t is None else rounded(t) for t in tokens)
    return f"{head.group} ({lengths} tokens, by {head.unit})"


def _sweep(rows: Sequence[LoadRow], name: str) -> MeasuredSweep:
    warnings = [text for row in rows for text in row.warnings]
    by_tokens = all(row.output_tokens_per_s is not None for row in rows)
    columns = _by_load(rows)
    counts = {len(column) for column in columns}
    meant = Counter(row.load for row in rows).values()
    if len(set(meant)) > 1:
        warnings.append(
            f"{name}: its loads were run {min(meant)} to {max(meant)} times; the mean of each "
            "stands, without an interval"
        )
    keep_runs = len(counts) == 1

    def table(values: Sequence[Sequence[float | None]]) -> FloatArray:
        lines = [[np.nan if v is None else v for v in column] for column in values]
        if keep_runs:
            return np.array(lines, dtype=np.float64).T
        return np.array([[np.mean(line) for line in lines]], dtype=np.float64)

    names = list(dict.fromkeys(key for row in rows for key in row.latencies))
    return MeasuredSweep(
        name=name,
        load_unit=rows[0].unit,
        loads=np.array([np.mean([row.offered for row in column]) for column in columns]),
        meant=np.array([max(row.load for row in column) for column in columns]),
        throughput=table(
            [
                [row.output_tokens_per_s if by_tokens else row.requests_per_s for row in column]
                for column in columns
            ]
        ),
        throughput_unit="output tokens/s" if by_tokens else "requests/s",
        requests_per_s=table([[row.requests_per_s for row in column] for column in columns]),
        in_system=table([[row.in_system for row in column] for column in columns]),
        failed_share=table([[row.failed_share for row in column] for column in columns]),
        latencies={
            key: table([[row.latencies.get(key) for row in column] for column in columns])
            for key in names
        },
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _by_load(rows: Sequence[LoadRow]) -> list[list[LoadRow]]:
    """Rows of the same load together, in rising order of the load that was offered.

    Loads that were meant to differ and ended up the same, because the client could do no more, are
    one load too.
    """
    meant: dict[float, list[LoadRow]] = {}
    for row in rows:
        meant.setdefault(row.load, []).append(row)

    def offered(column: list[LoadRow]) -> float:
        return float(np.mean([row.offered for row in column]))

    columns: list[list[LoadRow]] = []
    for column in sorted(meant.values(), key=offered):
        saturated = not all(row.was_offered for row in column)
        last = columns[-1] if columns else None
        near = last is not None and offered(column) <= (1 + SAME_LOAD) * offered(last)
        if last is not None and near and (saturated or not all(r.was_offered for r in last)):
            last.extend(column)
        else:
            columns.append(list(column))
    return columns
