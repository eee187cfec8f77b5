"""Runs a notebook under nbval in a process of its own, and tells which cells failed."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import nbformat

from course.paths import ROOT

OPTIONS = [
    "--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout=120", "-q",
    "-p", "no:hypothesispytest", "-p", "no:benchmark", "-p", "no:xdist", "-p", "no:cacheprovider",
    "-W", "default",
]  # fmt: skip


def failed_cells(notebook: Any, path: Path, *, strict: bool) -> tuple[list[str], str]:
    """The ids of the code cells that fail when `notebook`, written to `path`, is run by nbval.

    Returns them in order, and the report's text for whoever has to read it.
    """
    nbformat.write(notebook, path)
    report = path.with_suffix(".xml")
    environment = {**os.environ, "COURSE_PROGRESS": "off", "COURSE_CURTAIN": "open"}
    environment.pop("COURSE_STRICT", None)
    if strict:
        environment["COURSE_STRICT"] = "1"
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *OPTIONS, "-c", str(ROOT / "pyproject.toml"),
         f"--rootdir={path.parent}", f"--junitxml={report}", str(path)],
        capture_output=True, encoding="utf-8", timeout=300, env=environment, cwd=path.parent, check=False,
    )  # fmt: skip
    ids = [cell.id for cell in notebook.cells if cell.cell_type == "code"]
    cases = list(ET.parse(report).getroot().iter("testcase"))
    assert len(cases) == len(ids), result.stdout[-3000:] + result.stderr[-2000:]
    failed = [
        name
        for name, case in zip(ids, cases, strict=True)
        if case.find("failure") is not None or case.find("error") is not None
    ]
    return failed, result.stdout


def check_cells(notebook: Any) -> list[str]:
    """The ids of the check cells."""
    return [
        cell.id for cell in notebook.cells if cell.metadata.get("course", {}).get("role") == "check"
    ]
