"""Makes the course ready on this machine, then starts it: what `make lab` and `make test` run.

    python3 start.py lab …      look at the machine, install, open JupyterLab (… is given to it)
    python3 start.py test …     the same with what the tests need; … is a lane or stages
    python3 start.py install    look at the machine and install

The standard library alone, in the syntax of Python 3.6: whatever Python 3 there is can say what is
missing. The environment variable EXTRAS names what `test` installs beside the course.
"""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from typing import Dict, Iterator, List

ROOT = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(ROOT, "course"))  # the course itself may not be imported yet

import machine  # noqa: E402

del sys.path[0]

VENV = os.path.join(ROOT, ".venv")
STAMP = os.path.join(VENV, ".installed")
INSTALLED_GB, EMPTY_GB = 0.1, 1.5


def main(words: List[str]) -> int:
    """Run one of the three; the exit status, where nothing was started."""
    known = words and words[0] in ("lab", "test", "install")
    if not known or (words[0] == "install" and len(words) > 1):
        print(__doc__)
        return 2
    task, rest = words[0], words[1:]
    extras = os.environ.get("EXTRAS", "dev,instructor") if task == "test" else ""
    os.chdir(ROOT)
    try:
        with one_at_a_time():
            ready = looked(task, rest) and made(extras)
    except KeyboardInterrupt:
        say("\nStopped. Nothing is broken: the same command goes on from here.")
        return 130
    if not ready:
        return 2
    python = machine.python_in(VENV)
    if task == "lab":
        return become([python, "-m", "course", "lab", *rest])
    if task == "test":
        return become([python, os.path.join("tests", "all.py"), *rest])
    return 0


def looked(task: str, rest: List[str]) -> bool:
    """Look at the machine, one line each, before anything is changed; whether it will do."""
    say("Looking at this machine ...")
    exists = os.path.lexists(VENV)
    why = machine.stale(VENV) if exists else ""
    whole = exists and not why
    findings = [python_finding(whole)]
    if exists:
        findings.append(environment_finding(why))
    folder = machine.folder_finding(ROOT, "nothing can be installed there")
    if whole and not folder.ok:
        folder = folder._replace(ok=None, words=f"{ROOT} is read-only; that will do", mend="")
    findings.append(folder)
    findings.append(machine.disk_finding(ROOT, INSTALLED_GB if whole else EMPTY_GB))
    if task == "lab":
        findings.append(machine.user_finding(rest))
    for finding in findings:
        say(machine.as_lines(finding))
    return all(finding.ok is not False for finding in findings)


def python_finding(whole: bool) -> machine.Finding:
    """Which Python the course will run on."""
    own = machine.dotted(sys.version_info[:3])
    if whole:
        version = machine.version_of(machine.python_in(VENV)) or ()
        return machine.Finding("Python", True, f"{machine.dotted(version)} in .venv")
    found = machine.new_enough_python()
    if found is None:
        oldest = machine.dotted(machine.OLDEST)
        mend = (
            f"install Python {oldest} or newer (python.org, your system's packages, conda, uv), "
            "then: make lab PYTHON=/path/to/that/python3"
        )
        words = f"this one is {own}, the course needs {oldest} or newer, and none was found"
        return machine.Finding("Python", False, words, mend)
    if found == sys.executable:
        return machine.Finding("Python", True, own)
    version = machine.version_of(found) or ()
    words = f"{own} is too old; {found} is {machine.dotted(version)} and is taken"
    return machine.Finding("Python", True, words)


def environment_finding(why: str) -> machine.Finding:
    """Whether the environment that is there can be used, and what happens where it cannot."""
    if not why:
        return machine.Finding("environment", True, ".venv is this folder's own")
    if os.path.islink(VENV):
        words = f".venv leads to {os.path.realpath(VENV)} and is of no use: {why}"
        return machine.Finding("environment", False, words, "remove the link .venv")
    return machine.Finding("environment", None, f".venv is built anew: {why}")


def made(extras: str) -> bool:
    """Make the environment and install into it, where that is not done; whether it is there."""
    old = ""
    if os.path.lexists(VENV) and machine.stale(VENV):
        old = f"{VENV}-old-{os.getpid()}"
        os.rename(VENV, old)
    done = False
    try:
        done = environment_made() and installed(extras)
    finally:
        if old and not done:  # what was there may be of more use than half a new one
            shutil.rmtree(VENV, ignore_errors=True)
            os.rename(old, VENV)
        elif old:
            say("Removing the old environment ...")
            shutil.rmtree(old, ignore_errors=True)
    return done or (bool(old) and usable_all_the_same())


def usable_all_the_same() -> bool:
    """Whether an environment that was moved, and could not be built anew, serves for this time.

    Its Python and packages are whole; only the way to the course must be told to all it starts.
    """
    python = machine.python_in(VENV)
    version = machine.version_of(python)
    if not version or version < machine.OLDEST or not machine.made_elsewhere(VENV):
        say("The environment that was there is as it was.")
        return False
    if machine.lacking(python) != []:
        return False
    say("Going on with the environment as it was; build it anew when there is a network.")
    os.environ["PYTHONPATH"] = ROOT
    return True


def environment_made() -> bool:
    """Make the virtual environment, with pip in it, where it is not there."""
    python = machine.python_in(VENV)
    if not os.path.lexists(VENV):
        say("Making the environment .venv ...")
        command = [machine.new_enough_python() or sys.executable, "-m", "venv", VENV]
        if subprocess.call(command) != 0:
            shutil.rmtree(VENV, ignore_errors=True)
            say("The environment could not be made; the lines above say why. On Debian and Ubuntu "
                "the package python3-venv may be missing.")  # fmt: skip
            return False
    null = subprocess.DEVNULL
    if subprocess.call([python, "-c", "import pip"], stdout=null, stderr=null) == 0:
        return True
    if subprocess.call([python, "-m", "ensurepip"]) == 0:
        return True
    say("There is no pip in .venv. Remove the folder .venv and run the same command again.")
    return False


def installed(extras: str) -> bool:
    """Install the course where what is installed is not what it asks for; pip's lines are shown."""
    python = machine.python_in(VENV)
    wanted = {part for part in extras.split(",") if part}
    stamp = read_stamp()
    missing = machine.lacking(python)
    had = {part for part in stamp.get("extras", "").split(",") if part}
    if missing == [] and stamp.get("needs") == needs_digest() and wanted <= had:
        return True
    all_of_it = ",".join(sorted(wanted | had))
    if missing and stamp:
        say(f"Missing in .venv: {', '.join(missing)}.")
    say("Installing the course into .venv (the first time a minute or two, about 1 GB) ...")
    target = f".[{all_of_it}]" if all_of_it else "."
    command = [
        python, "-m", "pip", "install", "--disable-pip-version-check", "-c", "constraints.txt",
        "-e", target,
    ]  # fmt: skip
    if subprocess.call(command) == 0:
        written = {"needs": needs_digest(), "extras": all_of_it}
        with open(STAMP, "w", encoding="utf-8") as file:
            file.write(json.dumps(written) + "\n")
        say("Installed.")
        return True
    if missing == [] and wanted <= had:
        say("That did not work (no network?). Going on with what was installed before.")
        return True
    say("The installation did not end well; pip's last lines say why (no network? a full disk?). "
        "The same command tries again.")  # fmt: skip
    return False


def needs_digest() -> str:
    """A name for what the course asks for; another one after a change of a requirement or pin."""
    digest = hashlib.sha256()
    for name in ("pyproject.toml", "constraints.txt"):
        with open(os.path.join(ROOT, name), "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()


def read_stamp() -> Dict[str, str]:
    """What the last installation was of; nothing where that is not known."""
    try:
        with open(STAMP, encoding="utf-8") as file:
            stamp = json.load(file)
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Wait while another start installs in this folder; two at once would spoil each other's."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Another start is installing in this folder; waiting for it ...")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:  # a network file system without locks
            pass
        yield


def become(command: List[str]) -> int:
    """Hand terminal and signals to a command for good; its exit status where that cannot be."""
    sys.stdout.flush()
    if os.name != "nt":
        os.execv(command[0], command)
    signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is the command's to answer
    return subprocess.call(command)


def say(line: str) -> None:
    """Print a line at once, in plain signs where the terminal knows no others."""
    encoding = sys.stdout.encoding or "ascii"
    print(line.encode(encoding, "replace").decode(encoding), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
