"""What a measuring run leaves behind, and its JSON file; nothing is measured or fitted here.

The file is one JSON object with the fields of `Record`, those of `Device`, `ModelShape`, `Point`,
`Check` and `LeftOut` inside it, under the names that the dataclasses give them; `schema` says which
layout it is. Reading needs no torch. `BENCHES` says what each bench times and what its shape holds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path

from course.measure._json_nouns import RecordError as RecordError
from course.measure._json_nouns import noun_from_json, noun_to_json
from course.paths import DATA

SCHEMA = "throughput-latency-course/measured/1"
"""The layout that this module writes and the only one that it reads."""

RECORDED = DATA / "recorded"
"""Runs that come with the course, each made by `python -m course bench` on the machine it names."""

_LARGEST_FILE_BYTES = 16 * 2**20


@dataclass(frozen=True)
class BenchWords:
    """What one bench times: a sentence, what one unit of its time is, and its shape's keys."""

    words: str
    unit: str
    shape: tuple[str, ...]


BENCHES: Mapping[str, BenchWords] = {
    "copy": BenchWords(
        "Copy a buffer; bytes count what is read and what is written.", "copy", ("buffer_bytes",)
    ),
    "matmul": BenchWords("Multiply two square matrices.", "product", ("size",)),
    "decode_gemm": BenchWords(
        "Multiply a batch of token vectors by one weight matrix, a new matrix each time.",
        "product",
        ("batch", "width_in", "width_out"),
    ),
    "decode_attention": BenchWords(
        "Attention of one new token a sequence over its KV cache.",
        "layer",
        ("batch", "context_tokens", "heads", "head_dim"),
    ),
    "prefill_attention": BenchWords(
        "Causal attention of a whole prompt over itself.",
        "layer",
        ("prompt_tokens", "heads", "head_dim"),
    ),
    "launch_eager": BenchWords(
        "Issue one kernel that does next to nothing, from Python.", "kernel", ("kernels",)
    ),
    "launch_graph": BenchWords(
        "The same kernels, recorded once and replayed as a CUDA graph.", "kernel", ("kernels",)
    ),
    "model_prefill": BenchWords(
        "The small transformer reads whole prompts.", "step", ("batch", "prompt_tokens")
    ),
    "model_decode": BenchWords(
        "The small transformer makes one token for each sequence, in a loop that feeds it back.",
        "step",
        ("batch", "context_tokens"),
    ),
    "model_decode_graph": BenchWords(
        "One such step, replayed as a CUDA graph.", "step", ("batch", "context_tokens")
    ),
}
"""Every bench that a record may hold."""


@dataclass(frozen=True)
class Device:
    """The machine as it was found: what ran the benches, and with which software.

    `kind` is `cpu` or `cuda`; `processors` counts CPU cores or a card's multiprocessors, `threads`
    those that torch used on the CPU; `cache_bytes` is the last-level cache that the buffers had to
    exceed; `clocks_mhz` holds what nvidia-smi said, before and after, and is empty without it.
    """

    kind: str
    name: str
    platform: str
    processors: int
    threads: int
    memory_bytes: int
    cache_bytes: int
    instructions: str
    driver: str | None
    cuda: str | None
    torch: str
    python: str
    clocks_mhz: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in ("cpu", "cuda"):
            raise ValueError(f"kind={self.kind!r} is not known; give cpu or cuda")
        for name in ("processors", "threads", "memory_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} is below 1; give what was found")


@dataclass(frozen=True)
class ModelShape:
    """The small transformer: multi-head attention, SwiGLU, rotary positions, no biases or gains.

    >>> ModelShape(layers=2, hidden=8, heads=2, intermediate=16, vocabulary=10).matrix_parameters
    1360
    """

    layers: int
    hidden: int
    heads: int
    intermediate: int
    vocabulary: int

    def __post_init__(self) -> None:
        for item in fields(self):
            if getattr(self, item.name) < 1:
                raise ValueError(
                    f"{item.name}={getattr(self, item.name)} is below 1; give 1 or more"
                )
        if self.hidden % (2 * self.heads):
            raise ValueError(
                f"hidden={self.hidden} is no multiple of 2·heads={2 * self.heads}; "
                "rotary positions turn pairs of numbers of one head"
            )

    @property
    def head_dim(self) -> int:
        """Numbers of one head's query, key or value."""
        return self.hidden // self.heads

    @property
    def matrices(self) -> tuple[tuple[int, int, int], ...]:
        """Every matrix that a step multiplies by: (how many such, width in, width out)."""
        return (
            (self.layers, self.hidden, 3 * self.hidden),
            (self.layers, self.hidden, self.hidden),
            (self.layers, self.hidden, 2 * self.intermediate),
            (self.layers, self.intermediate, self.hidden),
            (1, self.hidden, self.vocabulary),
        )

    @property
    def matrix_parameters(self) -> int:
        """Parameters that every step reads: the layers and the output head, not the embedding."""
        return sum(count * wide * out for count, wide, out in self.matrices)

    def kv_bytes_per_token(self, bytes_per_number: int) -> int:
        """Return the bytes of KV cache that one token takes."""
        return 2 * self.layers * self.hidden * bytes_per_number


@dataclass(frozen=True)
class Point:
    """One measured size: seconds for one unit of its bench (`BENCHES[bench].unit`).

    `bytes` and `flops` are what the unit must at least move and compute; the four times are of
    `repeats` samples, each the mean of `calls` units that ran back to back on different buffers.
    """

    bench: str
    precision: str
    shape: Mapping[str, int]
    bytes: int
    flops: int
    median_s: float
    p25_s: float
    p75_s: float
    fastest_s: float
    repeats: int
    calls: int

    def __post_init__(self) -> None:
        if self.bench not in BENCHES:
            raise ValueError(f"bench={self.bench!r} is not known; give one of {sorted(BENCHES)}")
        wanted = set(BENCHES[self.bench].shape)
        if set(self.shape) != wanted:
            raise ValueError(
                f"shape={dict(self.shape)} does not fit {self.bench}, which has {sorted(wanted)}"
            )
        if not 0 < self.fastest_s <= self.p25_s <= self.median_s <= self.p75_s:
            raise ValueError(
                f"fastest_s={self.fastest_s}, p25_s={self.p25_s}, median_s={self.median_s}, "
                f"p75_s={self.p75_s} are not above 0 and in this order"
            )
        for name, low in (("bytes", 0), ("flops", 0), ("repeats", 1), ("calls", 1)):
            if getattr(self, name) < low:
                raise ValueError(f"{name}={getattr(self, name)} is below {low}")

    @property
    def bytes_per_s(self) -> float:
        """Bytes moved per second, at the median."""
        return self.bytes / self.median_s

    @property
    def flop_per_s(self) -> float:
        """Operations per second, at the median."""
        return self.flops / self.median_s

    @property
    def spread(self) -> float:
        """Upper over lower quartile: 1 is perfectly steady."""
        return self.p75_s / self.p25_s


@dataclass(frozen=True)
class Check:
    """A kernel's result held against plain float64 arithmetic, before anything was timed.

    `error` is the largest difference over the largest reference value; it passed if `error` is at
    most `allowed`.
    """

    name: str
    precision: str
    error: float
    allowed: float

    @property
    def passed(self) -> bool:
        """Whether the error is within what the precision explains."""
        return self.error <= self.allowed


@dataclass(frozen=True)
class LeftOut:
    """Something that was not measured, and why, in words for the reader."""

    what: str
    reason: str


@dataclass(frozen=True)
class Record:
    """One run of the benches: when, on what, with which result.

    `started_at` is ISO 8601 with its offset; `warnings` say what may have disturbed the run.
    """

    schema: str
    started_at: str
    quick: bool
    seed: int
    budget_s: float
    spent_s: float
    device: Device
    model: ModelShape
    points: tuple[Point, ...] = ()
    checks: tuple[Check, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.schema != SCHEMA:
            raise ValueError(f"schema={self.schema!r} is not {SCHEMA!r}; measure again")
        try:
            when = datetime.fromisoformat(self.started_at)
        except ValueError:
            when = None
        if when is None or when.tzinfo is None:
            raise ValueError(
                f"started_at={self.started_at!r} is no ISO 8601 time with an offset, such as "
                "2026-11-29T18:30:00+00:00"
            )

    @property
    def label(self) -> str:
        """The machine in a few words, for a picture's caption."""
        device = self.device
        if device.kind == "cuda":
            return f"{device.name}, {self.started_at[:10]}"
        cores = "1 core" if device.processors == 1 else f"{device.processors} cores"
        return f"{cores} of {device.name}, {self.started_at[:10]}"

    @property
    def precisions(self) -> tuple[str, ...]:
        """The precisions that have points, in the order of measuring."""
        return tuple(dict.fromkeys(point.precision for point in self.points))

    def of(self, bench: str, precision: str | None = None) -> tuple[Point, ...]:
        """Return the points of one bench, and of one precision if given; none is no error.

        Raises ValueError for a bench that `BENCHES` does not have.
        """
        if bench not in BENCHES:
            raise ValueError(f"bench={bench!r} is not known; give one of {sorted(BENCHES)}")
        return tuple(
            point
            for point in self.points
            if point.bench == bench and precision in (None, point.precision)
        )


def load_record(path: Path | str) -> Record:
    """Return the record in the JSON file `path`; works without torch.

    Raises RecordError where the file is missing, damaged or of another layout, with the place in
    it; the way to mend it is to measure again.
    """
    where = Path(path)
    if not where.exists():
        raise RecordError(f"there is no file {where}; {_MEND}")
    try:
        if where.stat().st_size > _LARGEST_FILE_BYTES:
            raise RecordError(f"{where}: is above 16 MiB, so it is no record of a measuring run")
        text = where.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"{where}: cannot be read ({error}); {_MEND}") from None
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{where}: is no JSON ({error}); {_MEND}") from None
    if isinstance(content, dict) and content.get("schema", SCHEMA) != SCHEMA:
        raise RecordError(
            f"{where}: schema is {content['schema']!r}, this course reads {SCHEMA!r}; {_MEND}"
        )
    try:
        return noun_from_json(Record, content, "record")
    except RecordError as error:
        raise RecordError(f"{where}: {error}; {_MEND}") from None


_MEND = "measure again with `python -m course bench --quick`"


def save_record(record: Record, path: Path | str) -> Path:
    """Write the record as JSON, a line a point; return where.

    The file is complete or the old one: it is written beside and then moved. Raises OSError.
    """
    where = Path(path)
    beside = where.with_name(where.name + ".part")
    beside.write_text(_as_text(record), encoding="utf-8", newline="\n")
    os.replace(beside, where)
    return where


def _as_text(record: Record) -> str:
    """Return the record's JSON, one line for each entry of a list: runs compare well."""
    lines = []
    for name, value in noun_to_json(record).items():
        if isinstance(value, list) and value:
            inside = ",\n  ".join(_plain(entry) for entry in value)
            lines.append(f" {json.dumps(name)}: [\n  {inside}\n ]")
        else:
            lines.append(f" {json.dumps(name)}: {_plain(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _plain(value: object) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=False)


def recorded_runs(kind: str | None = None) -> tuple[Record, ...]:
    """Return the runs that come with the course, newest first; those of one `kind` if given.

    Raises RecordError where one is damaged.

    >>> recorded_runs("cpu")[0].device.kind
    'cpu'
    """
    runs = [load_record(path) for path in sorted(RECORDED.glob("*.json"))]
    chosen = [run for run in runs if kind in (None, run.device.kind)]
    return tuple(sorted(chosen, key=lambda run: run.started_at, reverse=True))


def newest_measured(folder: Path) -> Record | None:
    """Return the newest readable record `measured-*.json` in `folder`, or None without one."""
    return next(_readable(sorted(folder.glob("measured-*.json"), key=_age, reverse=True)), None)


def _readable(paths: list[Path]) -> Iterator[Record]:
    for path in paths:
        try:
            yield load_record(path)
        except RecordError:
            continue


def _age(path: Path) -> float:
    return path.stat().st_mtime
