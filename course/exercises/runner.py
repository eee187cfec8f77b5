"""Runs one notebook in a kernel of its own and writes down what its checks said; judges nothing.

`python -m course.exercises.runner JOB.json` is started by `grading` as a process of its own, which
first takes the memory and processor limits upon itself: the kernel inherits them. The report is
rewritten after every cell, so that it is there even when the process is ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from course.exercises.attest import ATTEST_MIME
from course.exercises.checking import CHECK_MIME

Ended = Literal["running", "completed", "crashed", "stuck", "limit"]

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_TEXT_LIMIT = 300
_FILE_LIMIT_BYTES = 256 * 1024**2
_STUCK_AFTER = 2
_LATE = "CellTimeout"


@dataclass(frozen=True)
class Job:
    """What to run and where to write: a prepared notebook, the folder it runs in, the limits."""

    notebook: str
    report: str
    folder: str
    cell_s: float
    memory_bytes: int | None
    processor_s: int


@dataclass
class CellReport:
    """What one code cell did: its error ("" for none) and the messages that checks sent."""

    id: str
    error: str = ""
    checks: list[dict[str, Any]] = field(default_factory=list)
    attest: dict[str, Any] | None = None


@dataclass
class Report:
    """How the notebook ran: how it ended, at which cell, and every cell that was started."""

    ended: Ended = "running"
    at: str = ""
    cells: list[CellReport] = field(default_factory=list)


def take_limits(memory_bytes: int | None, processor_s: int) -> None:
    """Limit this process and its children; nothing where the system has no such limits."""
    try:
        import resource
    except ImportError:  # Windows: `grading.limits_in_force` says so
        return
    wanted = {
        resource.RLIMIT_CPU: processor_s,
        resource.RLIMIT_FSIZE: _FILE_LIMIT_BYTES,
        resource.RLIMIT_CORE: 0,
    }
    if memory_bytes is not None:
        wanted[resource.RLIMIT_AS] = memory_bytes
    for which, limit in wanted.items():
        _, most = resource.getrlimit(which)
        allowed = limit if most == resource.RLIM_INFINITY else min(limit, most)
        # macOS refuses some of them: the rest still hold
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(which, (allowed, most))


def run_job(job: Job) -> Report:
    """Run a prepared notebook cell by cell; the report, which is also on disk after each cell.

    A cell's error does not stop the run; a dead kernel does, and so do two cells in a row that
    run past their time.
    """
    import nbformat
    from nbclient.exceptions import DeadKernelError

    notebook = nbformat.read(job.notebook, as_version=4)
    report = Report()
    client = _client(notebook, job)
    late = 0
    with client.setup_kernel(cwd=job.folder):
        for index, cell in enumerate(notebook.cells):
            if cell.cell_type != "code" or not cell.source.strip():
                continue
            report.at = cell.id
            _write(report, job.report)
            started = time.monotonic()
            try:
                client.execute_cell(cell, index)
            except DeadKernelError:
                report.ended = "crashed"
                break
            finished = _cell_report(cell)
            if time.monotonic() - started >= job.cell_s:
                # the interrupt shows as whatever the student's code made of it, or not at all
                finished.error = f"{_LATE}: the cell ran longer than {job.cell_s:g} s"
            report.cells.append(finished)
            cell.outputs = []
            late = late + 1 if finished.error.startswith(_LATE) else 0
            if late == _STUCK_AFTER:
                report.ended = "stuck"
                break
        else:
            report.ended = "completed"
        _write(report, job.report)
    return report


def _client(notebook: Any, job: Job) -> Any:
    """A client whose kernel is this very Python, whatever kernel the notebook names."""
    from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient

    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]

    class ThisPython(KernelSpecManager):  # type: ignore[misc, unused-ignore]
        def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
            return KernelSpec(argv=argv, display_name="Python 3", language="python")

    class Manager(AsyncKernelManager):  # type: ignore[misc, unused-ignore]
        def __init__(self, **options: Any) -> None:
            super().__init__(kernel_spec_manager=ThisPython(), **options)

    late = {"ename": _LATE, "evalue": "", "traceback": []}
    return NotebookClient(
        notebook,
        kernel_manager_class=Manager,
        timeout=job.cell_s,
        allow_errors=True,
        interrupt_on_timeout=True,
        error_on_timeout=late,
        skip_cells_with_tag="",
        record_timing=False,
    )


def _cell_report(cell: Any) -> CellReport:
    report = CellReport(cell.id)
    for output in cell.outputs:
        if output.output_type == "error":
            report.error = _short(f"{output.ename}: {output.evalue}")
        data: Mapping[str, Any] = output.get("data", {})
        if isinstance(data.get(CHECK_MIME), dict):
            report.checks.append(dict(data[CHECK_MIME]))
        if isinstance(data.get(ATTEST_MIME), dict):
            report.attest = dict(data[ATTEST_MIME])
    return report


def _short(text: str) -> str:
    line = " ".join(_ANSI.sub("", text).split())
    return line if len(line) <= _TEXT_LIMIT else line[: _TEXT_LIMIT - 3] + "..."


def _write(report: Report, path: str) -> None:
    new = Path(path + ".new")
    new.write_text(json.dumps(asdict(report)), encoding="utf-8")
    os.replace(new, path)


def main(arguments: list[str]) -> int:
    """Run the job in the file named by the one argument; 0 when a report was written."""
    job = Job(**json.loads(Path(arguments[0]).read_text(encoding="utf-8")))
    take_limits(job.memory_bytes, job.processor_s)
    run_job(job)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
