"""The committed tables of predicted against measured, and what they say; nothing is predicted here.

The public address of these names is `course.serving.validation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from course.serving.catalog import UnknownNameError, table
from course.words import percent

Pairs = Sequence[tuple[float, float]]

FOLDER = "validation"
LEFT_OUT = "throughput, set-up left out"
LEFT_OUT_TPOT = "TPOT, set-up left out"
LEFT_OUT_TTFT = "TTFT, set-up left out"
OWN = "throughput, three constants a set-up"
ONE_SET = "serving points"

HOST_OF_2023 = "splitwise-sim"
"""The source whose steps are a server's of 2023: many sequences' prompts may be several steps, and
one host feeds eight cards, so that its bandwidth falls as cards are added. Shown, not claimed."""


@dataclass(frozen=True)
class PointRow:
    """A serving point, measured beside predicted.

    Throughputs are in output tokens/s. `predicted`: with the one set of constants; `left_out`: with
    those of a fit without this set-up; `own`: with three constants of its own, empty where the
    set-up has too few points. `tpot_stat` and `ttft_stat` say which statistic was measured; the
    predicted one is the same, and the mean where it is unknown.
    """

    setup: str
    kind: str
    prompt_tokens: float
    output_tokens: float
    concurrency: int
    throughput_is: str
    measured_tokens_per_s: float
    predicted_tokens_per_s: float
    left_out_tokens_per_s: float
    own_tokens_per_s: float | None
    tpot_stat: str
    measured_tpot_s: float
    predicted_tpot_s: float
    ttft_stat: str
    measured_ttft_s: float
    predicted_ttft_s: float
    left_out_tpot_s: float
    left_out_ttft_s: float
    source: str


@dataclass(frozen=True)
class StepRow:
    """A step, measured beside predicted; `setup` has three constants of its own."""

    setup: str
    part: str
    phase: str
    n_gpus: int
    sequences: int
    prompt_tokens: int
    context_tokens: int
    measured_s: float
    predicted_s: float
    weight_read_s: float
    source: str


@dataclass(frozen=True)
class ConstantRow:
    """A fitted constant and its standard deviation (empty where not known), in SI units.

    `fit`: "serving points" for the one set, or the set-up and part of a fit to single steps.
    """

    fit: str
    constant: str
    value: float
    deviation: float | None
    words: str
    source: str


@dataclass(frozen=True)
class ErrorRow:
    """How far off: |predicted / measured − 1| over some points, as shares.

    `figure`: what was predicted, and by which constants; `block`: which points.
    """

    figure: str
    block: str
    points: int
    median: float
    p90: float
    worst: float


@dataclass(frozen=True)
class FoldRow:
    """Rows that a fit has not seen: how far off they are, as medians and P90 of the errors' sizes.

    `fold`: what was left out ("set-up", "source", "card", "model"); `left_out`: which one; `kind`:
    "dense" (bf16 or fp8), "4 bits" (nvfp4) or "experts".
    """

    fold: str
    left_out: str
    kind: str
    points: int
    throughput_median: float
    throughput_p90: float
    tpot_median: float
    ttft_median: float
    source: str


TABLES: dict[str, type] = {
    "serving_points.csv": PointRow,
    "iteration_times.csv": StepRow,
    "constants.csv": ConstantRow,
    "left_out.csv": FoldRow,
}


def committed_points() -> tuple[PointRow, ...]:
    """Return the serving points of the committed table, without simulating anything."""
    return table(PointRow, f"{FOLDER}/serving_points.csv")


def committed_steps() -> tuple[StepRow, ...]:
    """Return the steps of the committed table."""
    return table(StepRow, f"{FOLDER}/iteration_times.csv")


def committed_constants() -> tuple[ConstantRow, ...]:
    """Return the fitted constants of the committed table, with their uncertainty."""
    return table(ConstantRow, f"{FOLDER}/constants.csv")


def committed_folds() -> tuple[FoldRow, ...]:
    """Return the errors of what was left out, of the committed table."""
    return table(FoldRow, f"{FOLDER}/left_out.csv")


def fold_row(
    fold: str,
    left_out: str,
    kind: str,
    throughput: Pairs,
    tpot: Pairs,
    ttft: Pairs,
) -> FoldRow:
    """Return one row of pairs (predicted, measured)."""
    row = _error("", "", throughput)
    return FoldRow(
        fold,
        left_out,
        kind,
        row.points,
        row.median,
        row.p90,
        _error("", "", tpot).median,
        _error("", "", ttft).median,
        "course-validation",
    )


def committed_errors() -> tuple[ErrorRow, ...]:
    """Return how far off the rows of the committed tables are.

    >>> [row.figure for row in committed_errors()][0]
    'throughput'
    """
    return errors_of(committed_points(), committed_steps())


# ======================================================================================= errors
# ======================================================================================== bands
FIGURES = ("throughput", "TPOT", "TTFT")
BAND = 0.90
"""Share of the left-out points that a band is made to hold."""


def error_band(kind: str, figure: str = "throughput", but: str | None = None) -> float:
    """Return the factor f: nine of ten points lie between predicted / f and predicted · f.

    From set-ups that the constants had not seen; m set-ups say less of the next one the fewer they
    are, so that the quantile taken is 0.9 + 0.1 / sqrt(m), at most 0.99: of three ways tried, the
    one that held at least as many points as it promised most often. `kind`: "dense", "4 bits" or
    "experts"; `figure`: one of `FIGURES`; `but`: a set-up whose points are not looked at.
    UnknownNameError otherwise.

    >>> 1.1 < error_band("dense") < error_band("experts") < 2
    True
    """
    if figure not in FIGURES:
        raise UnknownNameError(f"figure={figure!r} is not known; give one of {', '.join(FIGURES)}")
    rows = [row for row in committed_points() if row.kind == kind and row.setup != but]
    if not rows:
        raise UnknownNameError(f"kind={kind!r} is not known; give 'dense', '4 bits' or 'experts'")
    sizes = np.abs(np.log([_left_out_factor(row, figure) for row in rows]))
    level = BAND + (1 - BAND) / np.sqrt(len({row.setup for row in rows}))
    return float(np.exp(np.quantile(sizes, min(level, 0.99))))


def band_coverage(kind: str, figure: str = "throughput") -> float:
    """Return the share of points that lie in the band made without their own set-up.

    >>> 0.85 < band_coverage("dense") < 0.97
    True
    """
    rows = [row for row in committed_points() if row.kind == kind]
    bands = {setup: error_band(kind, figure, setup) for setup in {row.setup for row in rows}}
    inside = [
        1 / bands[row.setup] <= _left_out_factor(row, figure) <= bands[row.setup] for row in rows
    ]
    return float(np.mean(inside))


def _left_out_factor(row: PointRow, figure: str) -> float:
    if figure == "throughput":
        return row.left_out_tokens_per_s / row.measured_tokens_per_s
    if figure == "TPOT":
        return row.left_out_tpot_s / row.measured_tpot_s
    return row.left_out_ttft_s / row.measured_ttft_s


def errors_of(points: Sequence[PointRow], steps: Sequence[StepRow]) -> tuple[ErrorRow, ...]:
    """Return the figures that are quoted.

    Dense models in bf16 and fp8 with recorded and derived throughput apart; then 4 bits and
    mixtures of experts, which are known less well; then single steps.
    """
    found = []
    dense = [row for row in points if row.kind == "dense"]
    for block in ("recorded", "derived", "all"):
        mine = [row for row in dense if block in ("all", row.throughput_is)]
        found += _errors_of_block(block, mine)
    for block in ("4 bits", "experts"):
        found += _errors_of_block(block, [row for row in points if row.kind == block])
    for setup in dict.fromkeys(row.setup for row in steps):
        its = [row for row in steps if row.setup == setup]
        figure = "matrices of a step" if its[0].part == "matrices" else "whole step"
        claimed = its[0].source != HOST_OF_2023
        block = setup if claimed else f"{setup} (shown, not claimed)"
        found.append(_error(figure, block, [(r.predicted_s, r.measured_s) for r in its]))
    return tuple(found)


def _errors_of_block(block: str, rows: Sequence[PointRow]) -> list[ErrorRow]:
    measured = [row.measured_tokens_per_s for row in rows]
    own = [
        (row.own_tokens_per_s, row.measured_tokens_per_s)
        for row in rows
        if row.own_tokens_per_s is not None
    ]
    return [
        _error(
            "throughput", block, [(r.predicted_tokens_per_s, r.measured_tokens_per_s) for r in rows]
        ),
        _error("TPOT", block, [(r.predicted_tpot_s, r.measured_tpot_s) for r in rows]),
        _error("TTFT", block, [(r.predicted_ttft_s, r.measured_ttft_s) for r in rows]),
        _error(
            LEFT_OUT,
            block,
            list(zip((r.left_out_tokens_per_s for r in rows), measured, strict=True)),
        ),
        _error(LEFT_OUT_TPOT, block, [(r.left_out_tpot_s, r.measured_tpot_s) for r in rows]),
        _error(LEFT_OUT_TTFT, block, [(r.left_out_ttft_s, r.measured_ttft_s) for r in rows]),
        _error(OWN, block, own),
    ]


def _error(figure: str, block: str, pairs: Sequence[tuple[float, float]]) -> ErrorRow:
    sizes = np.array([abs(predicted / measured - 1) for predicted, measured in pairs])
    return ErrorRow(
        figure,
        block,
        sizes.size,
        round(float(np.median(sizes)), 4),
        round(float(np.quantile(sizes, 0.9)), 4),
        round(float(sizes.max()), 4),
    )


def error_row(figure: str, block: str) -> ErrorRow:
    """Return one row of the committed errors; UnknownNameError where there is none.

    >>> error_row("throughput", "recorded").points
    105
    """
    rows = {(row.figure, row.block): row for row in committed_errors()}
    if (figure, block) not in rows:
        raise UnknownNameError(
            f"figure={figure!r}, block={block!r} is not known; see committed_errors()"
        )
    return rows[figure, block]


def fit_statement() -> str:
    """Return in one paragraph how far the cost model was off, from the committed table.

    >>> fit_statement().split()[:4]
    ['Held', 'against', '105', 'load']
    """
    recorded, derived = (error_row("throughput", block) for block in ("recorded", "derived"))
    tpot, left_out, own = (error_row(name, "all") for name in ("TPOT", LEFT_OUT, OWN))
    ttft, experts = error_row("TTFT", "all"), error_row(LEFT_OUT, "experts")
    setups = len({row.setup for row in committed_points() if row.kind == "dense"})
    return (
        f"Held against {recorded.points} load levels of real servers whose throughput was "
        f"recorded, the throughput predicted from data sheets is off by {_whole(recorded.median)} "
        f"in the median and by at most {_whole(recorded.p90)} on nine of ten, "
        f"{_whole(recorded.worst)} at worst; on {derived.points} more, whose throughput was "
        f"derived from measured latencies, by {_whole(derived.median)} and {_whole(derived.p90)}, "
        f"and a factor of {1 + derived.worst:.0f} at worst. Time per output token is off by "
        f"{_whole(tpot.median)} in the median, time to first token by {_whole(ttft.median)}. One "
        f"set of constants serves all {setups} set-ups of dense models. "
        f"On a set-up that it was not fitted to, throughput is off by {_whole(left_out.median)} in "
        f"the median; fitted to that set-up alone, by {_whole(own.median)}. A mixture of experts "
        f"is known less well: {_whole(experts.median)} in the median, and {_whole(experts.p90)} at "
        f"most on nine of ten of {experts.points} load levels."
    )


def _whole(share: float) -> str:
    return percent(round(share, 2))


def validation_text(
    validation_errors: Sequence[ErrorRow],
    constants: Sequence[ConstantRow],
    folds: Sequence[FoldRow] = (),
) -> str:
    """Return errors and constants as tables for a terminal.

    First the one that answers "how far off": in the median and on nine of ten, with the constants
    in force and where a set-up, a source, a card, a model was left out of the fit.
    """
    by_name = {(row.figure, row.block): row for row in validation_errors}
    lines = [
        "How far off, in per cent (half of the points / nine of ten of them)",
        f"{'':<34}  points   throughput         TPOT          TTFT",
    ]
    for kind, words in KINDS.items():
        for names, what in (
            (("throughput", "TPOT", "TTFT"), words),
            ((LEFT_OUT, LEFT_OUT_TPOT, LEFT_OUT_TTFT), "  on a set-up not seen"),
        ):
            rows = [by_name[name, kind] for name in names if (name, kind) in by_name]
            if rows:
                cells = "  ".join(f"{100 * r.median:5.1f} /{100 * r.p90:5.1f}" for r in rows)
                lines.append(f"{what:<34}  {rows[0].points:6d}  {cells}")
        for fold in ("source", "card", "model"):
            mine = [r for r in folds if r.fold == fold and r.kind == FOLD_KINDS[kind]]
            if mine:
                worst = max(mine, key=lambda r: r.throughput_median)
                lines.append(
                    f"  {'on a ' + fold + ' not seen, the worst':<32}  {worst.points:6d}  "
                    f"{100 * worst.throughput_median:5.1f} /{100 * worst.throughput_p90:5.1f}"
                    f"  {100 * worst.tpot_median:5.1f}         {100 * worst.ttft_median:5.1f}"
                    f"         {worst.left_out}"
                )
    width = max(len(row.figure) for row in validation_errors)
    lines += ["", f"{'|predicted / measured - 1|':<{width}}  points  median    P90   worst  of"]
    lines += [
        f"{row.figure:<{width}}  {row.points:6d}  {100 * row.median:5.1f} % {100 * row.p90:5.1f} % "
        f"{100 * row.worst:6.1f} %  {row.block}"
        for row in validation_errors
    ]
    lines += ["", "Constants fitted anew to the serving points, with their standard deviations"]
    lines += [
        f"  {row.constant} = {row.value:.3g}"
        + (f" ± {row.deviation:.2g}" if row.deviation is not None else "")
        + f"  ({row.words})"
        for row in constants
        if row.fit == ONE_SET
    ]
    return "\n".join(lines)


KINDS = {"all": "dense models, bf16 and fp8", "4 bits": "dense models, 4 bits",
         "experts": "mixtures of experts"}  # fmt: skip
FOLD_KINDS = {"all": "dense", "4 bits": "4 bits", "experts": "experts"}
"""What a block of the errors is called in the table of what was left out."""
