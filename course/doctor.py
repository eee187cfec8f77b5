"""Looks whether this machine can run the course and says how to mend it; mends nothing itself.

The standard library alone, so that it can speak where a package is missing; what needs packages is
tried in processes of their own, for a bounded time.
"""

from __future__ import annotations

import csv
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from course import machine
from course.desk import a_desk, settle_homes
from course.machine import Finding
from course.paths import DATA, INSTALLED, NOTEBOOKS, ROOT, WORK

_NEEDED_MEMORY_BYTES = 2 * 2**30
_NEEDED_DISK_GB = 0.1
_KERNEL_S = 60.0
_NEED = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*([^;\[]*)")

Progress = Callable[[str], None]


def main(words: Sequence[str] = ()) -> int:
    """Print each finding as it is made; the exit status is 1 where something is to be mended."""
    wrong = 0
    for finding in examine(words, lambda line: print(f"      … {line}", flush=True)):
        print(machine.as_lines(finding), flush=True)
        wrong += finding.ok is False
    print("All is well." if not wrong else f"{wrong} to mend; see the arrows above.", flush=True)
    return 1 if wrong else 0


def examine(words: Sequence[str] = (), progress: Progress = lambda _: None) -> Iterator[Finding]:
    """Yield what each examination finds, as it ends; one that breaks is a finding too.

    `words` are what JupyterLab would be started with; `progress` gets a line where one waits.
    """
    looks: list[Callable[[], Iterator[Finding]]] = [
        _python, lambda: _user(words), _folders, _packages, _files, _widgets, _memory, _gpu,
        _offline, _desk, lambda: _compiled_code(progress), _matplotlib, lambda: _kernel(progress),
    ]  # fmt: skip
    for look in looks:
        try:
            yield from look()
        except Exception as error:
            kind = type(error).__name__
            yield Finding(
                "doctor", False, f"an examination itself failed: {kind}: {error}", install()
            )


def install() -> str:
    """The command that installs the course into this very Python, whatever was done before."""
    python = shlex.quote(sys.executable)
    if not (ROOT / "pyproject.toml").exists():
        return f"{python} -m pip install --force-reinstall {machine.NAME}"
    return f"cd {shlex.quote(str(ROOT))} && {python} -m pip install -c constraints.txt -e ."


def _python() -> Iterator[Finding]:
    version = platform.python_version()
    where = f"{version} on {platform.system()} {platform.machine()}, {sys.executable}"
    yield Finding("Python", True, where)
    if sys.prefix == sys.base_prefix:
        yield Finding("environment", None, "not a virtual environment; `make lab` makes one")
        return
    elsewhere = machine.made_elsewhere(sys.prefix)
    if not elsewhere:
        yield Finding("environment", True, sys.prefix)
        return
    mend = "run `make lab`: it builds the environment anew"
    words = f"{sys.prefix} was made in {elsewhere}, and its scripts still lead there"
    yield Finding("environment", False, words, mend)


def _user(words: Sequence[str]) -> Iterator[Finding]:
    yield machine.user_finding(words)


def _folders() -> Iterator[Finding]:
    trouble = "" if INSTALLED else machine.cannot_write(str(ROOT))
    if trouble:
        place, _ = a_desk(WORK)
        words = f"{ROOT} cannot be written ({trouble}); new notebooks are laid out in {place}"
        yield Finding("folder", None, words)
    elif not INSTALLED:
        yield Finding("folder", True, f"{ROOT} can be written")
    yield machine.disk_finding(str(ROOT), _NEEDED_DISK_GB)
    for name, folder in machine.folders_of_the_user():
        why = machine.cannot_be_made(folder)
        if why:
            words = f"{folder} cannot be written ({why}): the course takes a temporary folder"
            yield Finding(name, None, words, f"set {name} to a folder of yours, to keep settings")
    settle_homes()  # as `lab` does, for what is tried below


def _needs() -> list[str]:
    """What the course asks for: by its checkout, else by what is installed."""
    project = ROOT / "pyproject.toml"
    if project.exists():
        found = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["dependencies"]
        return [str(need) for need in found]
    return [n for n in importlib.metadata.requires(machine.NAME) or [] if "extra ==" not in n]


def _packages() -> Iterator[Finding]:
    if machine.lacking(sys.executable) is None:
        yield Finding("course", False, f"is not installed for {sys.executable}", install())
    good = []
    for need in _needs():
        match = _NEED.match(need)
        assert match is not None
        name, ranges = match.groups()
        try:
            package = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            yield Finding(name, False, f"is missing; the course needs {need}", install())
            continue
        lost = sum(not _there(package, file) for file in _recorded(package))
        if lost:
            again = f"{name}=={package.version}"
            python = shlex.quote(sys.executable)
            mend = f"{python} -m pip install --force-reinstall --no-deps {shlex.quote(again)}"
            yield Finding(name, False, f"{lost} of its files are missing", mend)
        elif not _within(package.version, ranges):
            yield Finding(name, False, f"{package.version} is outside {ranges.strip()}", install())
        else:
            good.append(f"{name} {package.version}")
    yield Finding(
        "packages", bool(good) or None, f"{len(good)} as they should be: {', '.join(good)}"
    )


def _recorded(package: importlib.metadata.Distribution) -> list[str]:
    """The files that were installed, there or not: newer Pythons' `files` leaves out the lost."""
    record = package.read_text("RECORD") or ""
    return [row[0] for row in csv.reader(record.splitlines()) if row]


def _there(package: importlib.metadata.Distribution, file: str) -> bool:
    # what Python writes for itself comes and goes; scripts lie outside the packages' folder
    if file.endswith(".pyc") or file.startswith(".."):
        return True
    return Path(str(package.locate_file(file))).exists()


def _within(version: str, ranges: str) -> bool:
    """Whether a version lies in the ranges of a requirement, by the numbers alone.

    >>> _within("2.2.6", ">=2.1,<3"), _within("3.0", ">=2.1,<3"), _within("2", ">=2.0")
    (True, False, True)
    """
    holds: dict[str, Callable[[list[int], list[int]], bool]] = {
        ">=": lambda a, b: a >= b, "<=": lambda a, b: a <= b, "==": lambda a, b: a == b,
        "!=": lambda a, b: a != b, ">": lambda a, b: a > b, "<": lambda a, b: a < b,
    }  # fmt: skip
    for part in filter(None, (part.strip() for part in ranges.split(","))):
        sign = next((sign for sign in holds if part.startswith(sign)), None)
        if sign and not holds[sign](_numbers(version), _numbers(part.removeprefix(sign))):
            return False
    return True


def _numbers(version: str) -> list[int]:
    release = re.match(r"\s*(\d+(?:\.\d+)*)", version)
    numbers = [int(part) for part in release[1].split(".")] if release else []
    return (numbers + [0] * 6)[:6]


def _files() -> Iterator[Finding]:
    for folder, what in ((NOTEBOOKS, "*.ipynb"), (DATA, "*.csv")):
        found = len(list(folder.rglob(what)))
        mend = (
            f"clone the course again, or get {folder.name}/ back with `git checkout {folder.name}`"
        )
        yield Finding(f"{folder.name}/", found > 0, f"{found} files", "" if found else mend)


def _widgets() -> Iterator[Finding]:
    """The sliders need a front-end part beside the Python part, of the same major version."""
    python = shlex.quote(sys.executable)
    mend = f"{python} -m pip install --force-reinstall --no-deps jupyterlab_widgets ipywidgets"
    package = Path(
        sys.prefix, "share/jupyter/labextensions/@jupyter-widgets/jupyterlab-manager/package.json"
    )
    if not package.exists():
        yield Finding("sliders", False, "JupyterLab has no front-end part of ipywidgets", mend)
        return
    version = json.loads(package.read_text(encoding="utf-8"))["version"]
    ok = version.split(".")[0] == "5"
    yield Finding("sliders", ok, f"front end {version}", "" if ok else mend)


def _memory() -> Iterator[Finding]:
    free = _free_bytes()
    if free is None:
        yield Finding("memory", None, "free memory is not told here; about 2 GiB are needed")
        return
    ok = free >= _NEEDED_MEMORY_BYTES
    mend = "close other programs: the course needs about 2 GiB" if not ok else ""
    yield Finding("memory", ok, f"{free / 2**30:.1f} GiB free", mend)


def _free_bytes() -> int | None:
    try:
        import psutil

        return int(psutil.virtual_memory().available)
    except ImportError:
        pass
    try:
        told = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return None
    found = re.search(r"MemAvailable:\s+(\d+) kB", told)
    return int(found[1]) * 1024 if found else None


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
    if WORK.is_dir():
        trouble = machine.cannot_write(str(WORK))
        if trouble and machine.cannot_write(str(WORK.parent)):
            yield Finding("work/", None, f"{WORK} is read-only, as the folder around it is")
        elif trouble:
            mend = f"get the folder back: sudo chown -R $(id -un) {shlex.quote(str(WORK))}"
            yield Finding("work/", False, f"{WORK} cannot be written ({trouble})", mend)
    notebooks = list(WORK.glob("*.ipynb"))
    if not notebooks:
        yield Finding("work/", None, "no notebook there yet; `make lab` lays them out")
        return
    broken = []
    for path in notebooks:
        try:
            json.loads(path.read_text(encoding="utf-8"))["cells"]
        except (ValueError, KeyError, TypeError, OSError):
            broken.append(path.name)
    mend = "move it aside; `make lab` then copies a new one" if broken else ""
    words = f"{len(notebooks)} notebooks" if not broken else f"cannot be read: {', '.join(broken)}"
    yield Finding("work/", not broken, words, mend)


def _here(code: str) -> list[str]:
    """A command that runs code with this Python and this very copy of the course."""
    return [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"]


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no word")


_COMPILE = """
from course.desk import warm_up
from course.serving._compiled import kernel_folder
print(kernel_folder(), flush=True)
def told(steps):
    for label, work in steps:
        work()
        print(label, flush=True)
warm_up(told)
"""


def _compiled_code(progress: Progress) -> Iterator[Finding]:
    progress("reading the compiled kernels, or compiling them: once, a minute or more")
    start = last = time.monotonic()
    folder = ""
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as said,
        subprocess.Popen(
            _here(_COMPILE), stdout=subprocess.PIPE, stderr=said, text=True, encoding="utf-8"
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            now = time.monotonic()
            if folder and now - last > 1.0:
                progress(f"compiled: {line.strip()} ({now - last:.0f} s)")
            folder, last = folder or line.strip(), now
        process.wait()
        said.seek(0)
        words = _last_line(said.read())
    if process.returncode != 0:
        mend = f"remove the folder {folder}, then run this again" if folder else install()
        yield Finding("compiled code", False, f"cannot be made: {words}", mend)
        return
    kept = f"ready after {time.monotonic() - start:.1f} s, kept in {folder}"
    if Path(folder).name.startswith("course-kernels-"):
        mend = "set the environment variable COURSE_CACHE_DIR to a folder of yours"
        words = "can be kept nowhere: each notebook compiles for a minute"
        yield Finding("compiled code", False, words, mend)
    else:
        yield Finding("compiled code", True, kept)


def _matplotlib() -> Iterator[Finding]:
    backend = os.environ.get("MPLBACKEND")
    done = subprocess.run(
        _here("import matplotlib.pyplot as p; p.figure()"), check=False, timeout=120, text=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8",
    )  # fmt: skip
    if done.returncode == 0:
        yield Finding("pictures", True, "matplotlib draws")
        return
    mend = "unset MPLBACKEND (the variable is set in your shell)" if backend else install()
    where = f" (MPLBACKEND is {backend})" if backend else ""
    yield Finding("pictures", False, f"{_last_line(done.stderr)}{where}", mend)


def ask_kernel(folder: str) -> None:
    """Start the kernel that notebooks in a folder get, have it answer, and print what it said.

    Runs in a process of its own; one line of JSON.
    """
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import start_new_kernel

    spec = KernelSpecManager().get_kernel_spec("python3")
    answer: dict[str, Any] = {"spec": str(spec.resource_dir), "argv": spec.argv[0]}
    code = (
        "import json, sys, course, ipywidgets, matplotlib.pyplot\n"
        "print(json.dumps([sys.prefix, list(course.__path__)]))"
    )
    with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
        try:
            manager, client = start_new_kernel(
                startup_timeout=_KERNEL_S, kernel_name="python3", cwd=folder,
                stdout=subprocess.DEVNULL, stderr=said,
            )  # fmt: skip
        except Exception as error:
            said.seek(0)
            words = _last_line(said.read())
            answer["died"] = words if words != "no word" else f"{type(error).__name__}: {error}"
        else:
            printed: list[str] = []

            def heard(message: Any) -> None:
                content = message["content"]
                if message["msg_type"] == "stream" and content["name"] == "stdout":
                    printed.append(content["text"])

            reply = client.execute_interactive(code, timeout=_KERNEL_S, output_hook=heard)
            content = reply["content"]
            if content["status"] == "ok":
                answer["prefix"], answer["course"] = json.loads("".join(printed))
            else:
                answer["error"] = f"{content['ename']}: {content['evalue']}"
            client.stop_channels()
            manager.shutdown_kernel(now=True)
    print(json.dumps(answer))


def _kernel(progress: Progress) -> Iterator[Finding]:
    progress("starting a notebook's kernel")
    folder = str(WORK) if WORK.is_dir() else tempfile.gettempdir()
    try:
        done = subprocess.run(
            _here(f"from course.doctor import ask_kernel; ask_kernel({folder!r})"),
            env={"JUPYTER_PREFER_ENV_PATH": "1", **os.environ}, check=False, text=True,
            timeout=3 * _KERNEL_S, capture_output=True, encoding="utf-8", errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        yield Finding("kernel", False, f"did not answer within {3 * _KERNEL_S:g} s", install())
        return
    if done.returncode != 0:
        words = _last_line(done.stderr)
        spec = f"{shlex.quote(sys.executable)} -m ipykernel install --sys-prefix"
        missing = "NoSuchKernel" in words
        yield Finding(
            "kernel", False, f"cannot be started: {words}", spec if missing else install()
        )
        return
    yield _kernel_finding(json.loads(done.stdout.splitlines()[-1]))


def _kernel_finding(answer: dict[str, Any]) -> Finding:
    """What a kernel's answer means; see `ask_kernel`."""
    if "error" in answer:
        return Finding("kernel", False, f"notebooks fail with {answer['error']}", install())
    foreign = "prefix" in answer and not _same(answer["prefix"], sys.prefix)
    if "died" in answer or foreign:
        words = f"notebooks are run by {answer['argv']}, as {answer['spec']} says"
        if "died" in answer:
            words += f", and that ends at once: {answer['died']}"
        mend = _own_kernel()
        if not Path(answer["spec"]).resolve().is_relative_to(Path(sys.prefix).resolve()):
            mend = f"rename the folder {answer['spec']}: it is another Python's"
            mend += " (or unset JUPYTER_PATH)" if os.environ.get("JUPYTER_PATH") else ""
        return Finding("kernel", False, words, mend)
    if not any(_same(folder, str(ROOT / "course")) for folder in answer["course"]):
        words = f"notebooks run the course of {answer['course'][0]}, not that of {ROOT}"
        return Finding("kernel", False, words, install())
    return Finding("kernel", True, f"started in {WORK.name}/ and answers, run by {sys.executable}")


def _own_kernel() -> str:
    return f"{shlex.quote(sys.executable)} -m ipykernel install --sys-prefix"


def _same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)
