"""An installed wheel is the whole course: whoever has no clone still has notebooks and data."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from course.paths import ROOT

BUILD = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"][
    "build"
]
GIT = shutil.which("git") if (ROOT / ".git").exists() else None


def paths_of(package: Path) -> ModuleType:
    """`course/paths.py` as it is in another place."""
    package.mkdir(parents=True, exist_ok=True)
    copy = shutil.copy(ROOT / "course" / "paths.py", package)
    spec = importlib.util.spec_from_file_location("elsewhere", copy)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*words: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command away from the clone and its settings."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("COURSE_", "PYTHON"))}
    return subprocess.run(
        [str(word) for word in words], cwd=cwd, env={**clean, **environment}, text=True,
        encoding="utf-8", capture_output=True, timeout=500, check=False,
    )  # fmt: skip


def test_the_build_brings_data_and_notebooks_where_paths_looks_for_them() -> None:
    """A file that the rules leave out is a traceback on every machine but the author's."""
    wheel = BUILD["targets"]["wheel"]
    assert wheel["only-include"] == ["course", "data", "notebooks"]
    for folder in ("data", "notebooks"):
        assert (ROOT / folder).is_dir()
        assert wheel["sources"][folder] == f"course/shipped/{folder}"
    assert not {"exclude", "include", "packages", "artifacts"} & (set(wheel) | set(BUILD))
    assert "sdist" not in BUILD["targets"], "the source distribution leaves nothing out"


@pytest.mark.skipif(GIT is None, reason="no clone with git")
def test_no_file_of_the_course_is_ignored() -> None:
    """The build leaves out what .gitignore names, as git does: an ignored table would be lost."""
    there = [
        path.relative_to(ROOT).as_posix()
        for folder in ("data", "notebooks", "course", "docs")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and not {"__pycache__", ".ipynb_checkpoints"} & set(path.parts)
    ]
    ignored = subprocess.run(
        [str(GIT), "check-ignore", "--no-index", "--stdin"], cwd=ROOT, input="\n".join(there),
        text=True, encoding="utf-8", capture_output=True, check=False,
    )  # fmt: skip
    assert len(there) > 300
    assert ignored.stdout.split("\n") == [""]


def test_a_clone_and_an_installed_copy_find_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never a folder `work` or a table in site-packages: an update would take it away."""
    monkeypatch.delenv("COURSE_WORK", raising=False)
    monkeypatch.chdir(tmp_path)
    clone = paths_of(tmp_path / "clone" / "course")
    home = (tmp_path / "clone").resolve()
    assert (home / "data", home / "notebooks") == (clone.DATA, clone.NOTEBOOKS)
    assert home / "work" == clone.WORK
    clone.need_clone("--write")

    site = (tmp_path / "site-packages").resolve()
    (site / "course" / "shipped").mkdir(parents=True)
    (site / "data").mkdir()  # another package's
    wheel = paths_of(site / "course")
    shipped = site / "course" / "shipped"
    assert (shipped / "data", shipped / "notebooks") == (wheel.DATA, wheel.NOTEBOOKS)
    assert Path.cwd() / "work" == wheel.WORK
    with pytest.raises(ValueError, match=r"--write changes the course's own files; use it in a"):
        wheel.need_clone("--write")

    monkeypatch.setenv("COURSE_WORK", "mine")
    assert Path.cwd() / "mine" == paths_of(site / "course").WORK


# ============================================================================ a real installation
@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The source distribution, the wheel made from it, and the wheel made from the clone."""
    top = tmp_path_factory.mktemp("built")
    tool = top / "tool"
    pip = (sys.executable, "-m", "pip")
    done = run(*pip, "install", "--quiet", "--target", tool, *_requirements(), cwd=top)
    assert done.returncode == 0, done.stderr
    clean = top / "clone"
    shutil.copytree(
        ROOT, clean,
        ignore=shutil.ignore_patterns(".venv*", ".git", "work", "__pycache__", ".*_cache"),
    )  # fmt: skip
    done = run(sys.executable, "-m", "hatchling", "build", cwd=clean, PYTHONPATH=str(tool))
    assert done.returncode == 0, done.stderr
    (sdist,), (wheel,) = (list((clean / "dist").glob(kind)) for kind in ("*.tar.gz", "*.whl"))
    with tarfile.open(sdist) as archive:
        archive.extractall(top / "source", filter="data")
    (source,) = (top / "source").iterdir()
    done = run(
        sys.executable, "-m", "hatchling", "build", "-t", "wheel", cwd=source, PYTHONPATH=str(tool)
    )
    assert done.returncode == 0, done.stderr
    (again,) = (source / "dist").glob("*.whl")
    return {"source": source, "wheel": wheel, "again": again, "clone": clean}


def _requirements() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return list(project["build-system"]["requires"])


@pytest.fixture(scope="module")
def python(built: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel; what the course needs is lent to it."""
    home = tmp_path_factory.mktemp("fresh") / "venv"
    venv.create(home, with_pip=False)
    names = {"base": str(home), "platbase": str(home)}
    site = Path(sysconfig.get_path("purelib", "venv", names))
    with zipfile.ZipFile(built["wheel"]) as archive:
        archive.extractall(site)
    lent = sysconfig.get_path("purelib")  # as a path alone: the clone is not lent with it
    (site / "lent.pth").write_text(f"{lent}\n", encoding="utf-8")
    folder = sysconfig.get_path("scripts", "venv", names)
    return Path(folder) / Path(sys.executable).name


@pytest.mark.deep
def test_wheel_and_source_hold_every_file(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as wheel, zipfile.ZipFile(built["again"]) as again:
        names = set(wheel.namelist())
        assert set(again.namelist()) == names
        clone = built["clone"]
        for folder in ("course", "data", "notebooks"):
            at = "course" if folder == "course" else f"course/shipped/{folder}"
            for path in (clone / folder).rglob("*"):
                if path.is_file():
                    inside = f"{at}/{path.relative_to(clone / folder).as_posix()}"
                    assert inside in names
                    assert wheel.read(inside) == path.read_bytes()
    assert {name.split("/")[0] for name in names if "dist-info" not in name} == {"course"}
    for path in (
        "Makefile",
        "constraints.txt",
        "tests/all.py",
        "docs/architecture.md",
        "README.md",
    ):
        assert (built["source"] / path).is_file()


@pytest.mark.deep
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["glossary", "rho"], "λ/(c·μ)"),
        (["replay"], "simulated"),
        (["lab", "--no-start"], "copied  02_mm1_queueing.ipynb"),
        (["lab", "--no-start", "--work", "mine"], "mine"),
        (["knee", "{data}/example_sweep/rate-04.json", "{data}/example_sweep/rate-20.json"],
         "load"),
        (["audit", "{data}/example_sweep/rate-04.json"], "rate-04.json"),
        (["bench", "--read", "{data}/recorded/cpu-2-cores-x86-64.json"], "core"),
        (["simulate", "--trace", "t.csv", "--gpu", "H100-80GB-SXM", "--model", "Llama-3.1-8B"],
         "H100"),
        (["new", "exercise", "some_name", "--lesson", "2"], "use it in a clone of the course"),
        (["replay", "--write"], "use it in a clone of the course"),
    ],
)  # fmt: skip
def test_the_wheel_alone_does_everything_from_an_empty_folder(
    python: Path, tmp_path: Path, words: list[str], said: str
) -> None:
    """Whoever ran `pip install` has no clone to stand in."""
    trace = "arrival_s,prompt_tokens,output_tokens\n0,9,3\n1,9,3\n"
    (tmp_path / "t.csv").write_text(trace, encoding="utf-8")
    code = "import course.paths as p; print(p.DATA)"
    data = run(python, "-c", code, cwd=tmp_path).stdout.strip()
    assert "shipped" in data
    filled = [word.replace("{data}", data) for word in words]
    done = run(python, "-m", "course", *filled, cwd=tmp_path, PYTHONUTF8="1")
    assert "Traceback" not in done.stderr
    assert said in done.stdout + done.stderr
    assert (done.returncode == 0) == ("use it in a clone" not in said), done.stderr
    made = {"lab": {"mine" if "mine" in words else "work"}}.get(words[0], set())
    assert {path.name for path in tmp_path.iterdir()} == {"t.csv"} | made


@pytest.mark.deep
def test_the_wheels_notebook_is_graded_where_it_was_laid(python: Path, tmp_path: Path) -> None:
    lab = run(python, "-m", "course", "lab", "--no-start", cwd=tmp_path, PYTHONUTF8="1")
    assert lab.returncode == 0, lab.stderr
    done = run(
        python, "-m", "course", "check", "work/00_start_here.ipynb", cwd=tmp_path, PYTHONUTF8="1"
    )
    assert done.returncode == 1, done.stderr
    assert "0.1" in done.stdout
    assert "not tried" in done.stdout
