"""The ways in (pip, conda, pins) ask for the same; otherwise two students run two courses."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CONDA_NAME = {"torch": "pytorch"}


def conda() -> dict[str, SpecifierSet]:
    parsed = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    specs = {}
    for line in parsed["dependencies"]:
        if isinstance(line, str):
            name, _, rest = line.partition(" ")
            specs[name] = SpecifierSet(rest)
    return specs


def test_conda_and_pip_ask_for_the_same_ranges() -> None:
    wanted = {
        CONDA_NAME.get(need.name, need.name): need.specifier
        for need in map(
            Requirement,
            [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["gpu"]],
        )
    }
    wanted["python"] = SpecifierSet(PROJECT["requires-python"])
    found = conda()
    found.pop("pip")
    assert found == wanted


def test_the_named_stack_is_in_the_conda_file() -> None:
    stack = {
        "jupyterlab",
        "ipywidgets",
        "numpy",
        "scipy",
        "matplotlib",
        "altair",
        "nbval",
        "pytorch",
    }
    assert stack <= set(conda())


def test_every_dependency_is_pinned_inside_its_range() -> None:
    pins: dict[str, list[str]] = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        pin = Requirement(line)
        (version,) = pin.specifier
        assert version.operator == "=="
        pins.setdefault(pin.name.lower().replace("_", "-"), []).append(version.version)
    needs = [*PROJECT["dependencies"]]
    for extra in PROJECT["optional-dependencies"].values():
        needs += extra
    for need in map(Requirement, needs):
        assert need.name in pins, f"{need.name} is not pinned: run `make pins`"
        for version in pins[need.name]:
            assert need.specifier.contains(version), f"{need} against the pin {version}"


def test_pins_hold_no_addresses() -> None:
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert not re.search(r"https?:|file:|--index|@ ", text)


def test_every_variable_that_the_course_reads_is_documented() -> None:
    """A dial that stands in the code alone is one that nobody turns."""
    told = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    read = set()
    for folder in ("course", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            read |= set(re.findall(r"\bCOURSE_[A-Z_]+\b", path.read_text(encoding="utf-8")))
    assert len(read) >= 6
    assert {name for name in read if f"`{name}`" not in told} == set()


def test_conda_brings_what_the_tests_need() -> None:
    """`make test` after the conda way in ended at a missing package."""
    parsed = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    (pip,) = (line["pip"] for line in parsed["dependencies"] if isinstance(line, dict))
    wanted = re.search(r"^EXTRAS \?= (\S+)$", (ROOT / "Makefile").read_text("utf-8"), re.M)
    assert wanted is not None
    assert pip == [f"-e .[{wanted[1]}]"]


def test_the_workflow_runs_readmes_commands_on_every_system_and_python() -> None:
    """What runs elsewhere under another name proves nothing of what a reader types."""
    text = (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")
    (job,) = yaml.safe_load(text)["jobs"].values()
    matrix = job["strategy"]["matrix"]
    assert [name.split("-")[0] for name in matrix["system"]] == ["ubuntu", "macos", "windows"]
    pythons = SpecifierSet(PROJECT["requires-python"])
    assert all(python in pythons for python in matrix["python"])
    assert matrix["python"][0] in PROJECT["requires-python"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    runs = [step["run"] for step in job["steps"] if "run" in step]
    assert [run.replace("python ", "py -3 ") in readme for run in runs] == [True, True]
    for step in job["steps"]:
        assert re.fullmatch(r"actions/[a-z-]+@v\d+", step.get("uses", "actions/none@v1"))
