"""What a machine must offer, looked at with the standard library alone; installs and mends nothing.

`start.py` looks with it before anything is installed, under whatever Python 3 there is: the syntax
is that of Python 3.6. `course.doctor` looks with it afterwards.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from typing import List, NamedTuple, Optional, Sequence, Tuple

OLDEST = (3, 11)
NAME = "throughput-latency-course"


class Finding(NamedTuple):
    """One thing looked at: `ok` is None where it is worth knowing and no fault."""

    subject: str
    ok: Optional[bool]
    words: str
    mend: str = ""


def as_lines(finding: Finding) -> str:
    """A finding in one line, and what to do in a second one where something is to be done.

    >>> print(as_lines(Finding("disk", False, "0.1 GB free", "empty the bin")))
    MEND  disk: 0.1 GB free
          → empty the bin
    """
    sign = {True: "ok  ", False: "MEND", None: "note"}[finding.ok]
    mend = f"\n      → {finding.mend}" if finding.mend else ""
    return f"{sign}  {finding.subject}: {finding.words}{mend}"


def version_of(python: str) -> Optional[Tuple[int, ...]]:
    """The version of the Python that a command starts; None where it starts none."""
    code = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
    try:
        said = subprocess.run(
            [python, "-I", "-c", code], timeout=60, check=True, encoding="utf-8",
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        ).stdout  # fmt: skip
        return tuple(int(part) for part in said.split("."))
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def dotted(version: Sequence[int]) -> str:
    """A version as people write it.

    >>> dotted((3, 11, 7))
    '3.11.7'
    """
    return ".".join(str(part) for part in version)


def new_enough_python() -> Optional[str]:
    """A Python that can run the course: this one, or the newest that lies on the path; or None."""
    if sys.version_info >= OLDEST:
        return sys.executable
    for minor in range(14, OLDEST[1] - 1, -1):
        found = shutil.which(f"python3.{minor}")
        if found and (version_of(found) or (0,)) >= OLDEST:
            return found
    return None


def python_in(environment: str) -> str:
    """Where a virtual environment has its Python."""
    windows = os.name == "nt"
    return os.path.join(environment, *(("Scripts", "python.exe") if windows else ("bin", "python")))


def stale(environment: str) -> str:
    """Why a virtual environment is of no use (any more); "" where nothing speaks against it."""
    version = version_of(python_in(environment))
    if version is None:
        return "its Python does not start"
    if version < OLDEST:
        return f"its Python is {dotted(version)}, the course needs {dotted(OLDEST)}"
    made_with = _configured(environment, "version") or _configured(environment, "version_info")
    if made_with and made_with.split(".")[:2] != [str(part) for part in version[:2]]:
        return f"it was made with Python {made_with}, and finds {dotted(version)} now"
    elsewhere = made_elsewhere(environment)
    return f"it was made in {elsewhere}" if elsewhere else ""


def made_elsewhere(environment: str) -> str:
    """The folder a virtual environment was made in, where that is another than it lies in.

    Its scripts and the course's own entry in it name that folder, so that a moved one is broken,
    and a copied one quietly runs the other's course.
    """
    _, made, place = _configured(environment, "command").partition(" -m venv ")
    while place.startswith("--"):
        place = place.partition(" ")[2]
    if not made or os.path.realpath(place) == os.path.realpath(environment):
        return ""
    return place


def _configured(environment: str, name: str) -> str:
    try:
        with open(os.path.join(environment, "pyvenv.cfg"), encoding="utf-8") as file:
            for line in file:
                key, _, value = line.partition("=")
                if key.strip() == name:
                    return value.strip()
    except (OSError, ValueError):
        pass
    return ""


def folder_finding(folder: str, use: str) -> Finding:
    """Whether new files can be made in a folder."""
    trouble = cannot_write(folder)
    if not trouble:
        return Finding("folder", True, f"{folder} can be written")
    mend = "copy the course into a folder of your own, or mend the rights of this one"
    return Finding("folder", False, f"{folder} cannot be written ({trouble}); {use}", mend)


def cannot_write(folder: str) -> str:
    """Why no file can be made in a folder; "" where one can.

    Rights are not asked but tried: a disk may be read-only, full, or of another's.
    """
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def folders_of_the_user() -> List[Tuple[str, str]]:
    """The folders that Jupyter, IPython and matplotlib write to, each with the variable naming it.

    Their own rules, as far as these lead into the user's home.
    """
    home = os.path.expanduser("~")
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    data = os.environ.get("XDG_DATA_HOME") or os.path.join(home, ".local", "share")
    data, matplotlib = os.path.join(data, "jupyter"), os.path.join(config, "matplotlib")
    if sys.platform == "darwin":
        data = os.path.join(home, "Library", "Jupyter")
    if sys.platform == "win32":
        data = os.path.join(os.environ.get("APPDATA") or home, "jupyter")
    if not sys.platform.startswith("linux"):
        matplotlib = os.path.join(home, ".matplotlib")
    data = os.environ.get("JUPYTER_DATA_DIR") or data
    usual = {
        "JUPYTER_CONFIG_DIR": os.path.join(home, ".jupyter"),
        "JUPYTER_DATA_DIR": data,
        "JUPYTER_RUNTIME_DIR": os.path.join(data, "runtime"),
        "IPYTHONDIR": os.path.join(home, ".ipython"),
        "MPLCONFIGDIR": matplotlib,
    }
    return [(name, os.environ.get(name) or folder) for name, folder in usual.items()]


def cannot_be_made(folder: str) -> str:
    """Why a folder can be neither made nor written to; "" where it can. Nothing is made."""
    place = os.path.abspath(folder)
    while not os.path.lexists(place) and os.path.dirname(place) != place:
        place = os.path.dirname(place)
    if not os.path.isdir(place):
        return f"{place} is no folder"
    return cannot_write(place)


def disk_finding(folder: str, needed_gb: float) -> Finding:
    """Whether there is room on a folder's disk."""
    free = shutil.disk_usage(folder).free / 1e9
    words = f"{free:.1f} GB free"
    if free >= needed_gb:
        return Finding("disk", True, words)
    mend = f"make room: {needed_gb:g} GB are needed"
    return Finding("disk", False, f"{words} where {folder} lies", mend)


def user_finding(arguments: Sequence[str]) -> Finding:
    """Whether JupyterLab will start for this user, with these arguments."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return Finding("user", True, "not root")
    if any(word.startswith(("--allow-root", "--ServerApp.allow_root")) for word in arguments):
        return Finding("user", None, "root, as you allow")
    return Finding(
        "user", False, "you are root, and JupyterLab refuses root by itself",
        'work as another user, or allow it (in a container, say): make lab ARGS="--allow-root"',
    )  # fmt: skip


def lacking(python: str) -> Optional[List[str]]:
    """What another Python lacks of the packages the course names; None where it lacks the course.

    Packages that only an extra asks for are not looked at.
    """
    code = f"""if True:
        import json, re, importlib.metadata as m
        try: needs = m.requires({NAME!r}) or []
        except m.PackageNotFoundError: needs = None
        def there(name):
            try: return bool(m.version(name))
            except m.PackageNotFoundError: return False
        names = [re.match("[A-Za-z0-9._-]+", n)[0] for n in needs or () if "extra ==" not in n]
        print(json.dumps(needs if needs is None else [n for n in names if not there(n)]))
    """
    try:
        said = subprocess.run(
            [python, "-I", "-c", code], timeout=120, check=True, encoding="utf-8",
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        ).stdout  # fmt: skip
        found = json.loads(said)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return None if found is None else list(found)
