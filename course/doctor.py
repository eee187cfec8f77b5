"""Looks whether this machine can run the course and says how to mend it; mends nothing itself."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import platform
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from course.paths import DATA, NOTEBOOKS, ROOT, WORK

_INSTALL = "run `make lab` again (or `pip install -c constraints.txt -e .` in the course's folder)"
_NEEDED_MEMORY_BYTES = 2 * 2**30
_SLOW_IMPORT_S = 30.0


@dataclass(frozen=True)
class Finding:
    """One thing looked at: `ok` is None where it is worth knowing and no fault."""

    subject: str
    ok: bool | None
    words: str
    mend: str = ""


def examine() -> list[Finding]:
    """Run all examinations; an examination that breaks is itself a finding, never an exception."""
    looks: list[Callable[[], Iterator[Finding]]] = [
        _python, _packages, _files, _kernel, _widgets,
        _kernels_compile, _memory, _gpu, _offline, _desk,
    ]  # fmt: skip
    findings: list[Finding] = []
    for look in looks:
        try:
            findings.extend(look())
        except Exception as error:
            name = look.__name__.strip("_")
            findings.append(
                Finding(name, False, f"the examination itself failed: {error}", _INSTALL)
            )
    return findings


def _python() -> Iterator[Finding]:
    version = platform.python_version()
    yield Finding("Python", True, f"{version} on {platform.system()} {platform.machine()}")
    if sys.prefix == sys.base_prefix:
        yield Finding("environment", None, "not a virtual environment; `make lab` makes one")


def _packages() -> Iterator[Finding]:
    from packaging.requirements import Requirement

    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    import tomllib

    for line in tomllib.loads(text)["project"]["dependencies"]:
        need = Requirement(line)
        try:
            version = importlib.metadata.version(need.name)
        except importlib.metadata.PackageNotFoundError:
            yield Finding(need.name, False, f"is missing; the course needs {need}", _INSTALL)
            continue
        if need.specifier.contains(version, prereleases=True):
            yield Finding(need.name, True, version)
        else:
            yield Finding(need.name, False, f"{version} is outside {need.specifier}", _INSTALL)


def _files() -> Iterator[Finding]:
    for folder, what in ((NOTEBOOKS, "*.ipynb"), (DATA, "*.csv")):
        found = len(list(folder.rglob(what)))
        mend = (
            f"clone the course again, or get {folder.name}/ back with `git checkout {folder.name}`"
        )
        yield Finding(f"{folder.name}/", found > 0, f"{found} files", "" if found else mend)


def _kernel() -> Iterator[Finding]:
    from jupyter_client.kernelspec import KernelSpecManager

    specs = KernelSpecManager().get_all_specs()
    if "python3" not in specs:
        yield Finding("kernel", False, "Jupyter finds no Python kernel", _INSTALL)
        return
    first = Path(specs["python3"]["spec"]["argv"][0])
    same = first.name == first.as_posix() or first.resolve() == Path(sys.executable).resolve()
    mend = f"`{sys.executable} -m ipykernel install --sys-prefix`"
    yield Finding("kernel", same, f"notebooks run in {first}", "" if same else mend)


def _widgets() -> Iterator[Finding]:
    """The sliders need a front-end part beside the Python part, of the same major version."""
    from jupyter_core.paths import jupyter_path

    wanted = importlib.metadata.version("jupyterlab_widgets")
    for folder in jupyter_path("labextensions", "@jupyter-widgets", "jupyterlab-manager"):
        package = Path(folder) / "package.json"
        if package.exists():
            version = json.loads(package.read_text(encoding="utf-8"))["version"]
            ok = version.split(".")[0] == "5"
            yield Finding(
                "sliders", ok, f"front end {version}, jupyterlab_widgets {wanted}",
                "" if ok else "`pip install --force-reinstall jupyterlab_widgets ipywidgets`",
            )  # fmt: skip
            return
    yield Finding("sliders", False, "JupyterLab has no front-end part of ipywidgets", _INSTALL)


def _kernels_compile() -> Iterator[Finding]:
    import time

    from course.desk import warm_up

    start = time.perf_counter()
    warm_up(_quietly)
    spent = time.perf_counter() - start
    words = f"loaded or compiled in {spent:.1f} s"
    slow = spent > _SLOW_IMPORT_S
    mend = "their cache cannot be kept: make the course's folder writable" if slow else ""
    yield Finding("compiled kernels", not slow, words, mend)


def _quietly(steps: Iterable[tuple[str, Callable[[], object]]]) -> None:
    for _, work in steps:
        work()


def _memory() -> Iterator[Finding]:
    import psutil

    free = psutil.virtual_memory().available
    ok = free >= _NEEDED_MEMORY_BYTES
    mend = "close other programs: the course needs about 2 GiB" if not ok else ""
    yield Finding("memory", ok, f"{free / 2**30:.1f} GiB free", mend)


def _gpu() -> Iterator[Finding]:
    if importlib.util.find_spec("torch") is None:
        yield Finding("torch", None, "not installed; only notebook 10 would use it")
    else:
        yield Finding("torch", None, importlib.metadata.version("torch"))


def _offline() -> Iterator[Finding]:
    """No notebook may need the network: look for addresses in their code cells."""
    loads = re.compile(r"https?://")
    guilty = []
    for path in NOTEBOOKS.glob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
        if any(loads.search(source) for source in code):
            guilty.append(path.name)
    words = "no notebook needs the network" if not guilty else f"addresses in {', '.join(guilty)}"
    yield Finding("offline", not guilty, words, "" if not guilty else "get the notebooks anew")


def _desk() -> Iterator[Finding]:
    notebooks = list(WORK.glob("*.ipynb"))
    if not notebooks:
        yield Finding("work/", None, "not there yet; `make lab` makes it")
        return
    broken = []
    for path in notebooks:
        try:
            json.loads(path.read_text(encoding="utf-8"))["cells"]
        except (ValueError, KeyError, OSError):
            broken.append(path.name)
    mend = "move it aside; `make lab` then copies a new one" if broken else ""
    words = f"{len(notebooks)} notebooks" if not broken else f"cannot be read: {', '.join(broken)}"
    yield Finding("work/", not broken, words, mend)


def report(findings: list[Finding]) -> str:
    """Return the findings as text, a line each, what to do under what is wrong."""
    signs = {True: "ok  ", False: "MEND", None: "note"}
    lines = []
    for finding in findings:
        lines.append(f"{signs[finding.ok]}  {finding.subject}: {finding.words}")
        if finding.mend:
            lines.append(f"      → {finding.mend}")
    wrong = sum(finding.ok is False for finding in findings)
    lines.append("All is well." if not wrong else f"{wrong} to mend; see the arrows above.")
    return "\n".join(lines)
