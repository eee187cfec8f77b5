"""Finding a device: every way in which torch, a driver or a card can be unfit, in clear words.

Stand-ins for torch and nvidia-smi, since no test machine has all these faults.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from course.measure import machine
from course.measure.machine import (
    CannotMeasureError,
    card_warnings,
    clocks_mhz,
    find_device,
    last_level_cache_bytes,
    need_torch,
    nvidia_smi,
    threads_beside,
)


def torch_with(cuda: str | None = "13.0", count: int = 1, fault: str = "") -> Any:
    """A stand-in for torch: a build for `cuda`, so many cards, and a fault when one is used."""

    def init() -> None:
        if fault:
            raise RuntimeError(fault)

    def ones(*_: int, device: str) -> Any:
        return SimpleNamespace(sum=lambda: SimpleNamespace(item=lambda: 1.0))

    properties = SimpleNamespace(
        name="A card", multi_processor_count=132, major=9, minor=0, L2_cache_size=50 * 2**20
    )
    return SimpleNamespace(
        __version__="2.13.0",
        version=SimpleNamespace(cuda=cuda),
        ones=ones,
        get_num_threads=lambda: 2,
        backends=SimpleNamespace(cpu=SimpleNamespace(get_cpu_capability=lambda: "AVX2")),
        cuda=SimpleNamespace(
            init=init, device_count=lambda: count,
            get_device_properties=lambda index: properties,
            mem_get_info=lambda: (70 * 2**30, 80 * 2**30),
        ),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _quiet_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """No nvidia-smi, and nobody else at work, unless a test says so."""
    import psutil

    monkeypatch.setattr(psutil, "cpu_percent", lambda interval: 3.0)
    monkeypatch.setattr(machine, "nvidia_smi", lambda fields, card: {})


def test_a_card_is_taken_when_there_is_one() -> None:
    found = find_device(torch_with())
    assert (found.kind, found.device.name, found.device.processors) == ("cuda", "A card", 132)
    assert found.device.cache_bytes == 50 * 2**20
    assert found.device.instructions == "sm_90"
    assert "10.0 of the card's 80.0 GiB were taken" in found.warnings[0]


def test_a_cpu_is_taken_when_asked_for_or_nothing_else_is_there() -> None:
    asked = find_device(torch_with(), "cpu")
    assert (asked.kind, asked.warnings, asked.device.threads) == ("cpu", (), 2)
    alone = find_device(torch_with(cuda=None))
    assert (alone.kind, alone.warnings) == ("cpu", ())
    assert alone.device.processors >= 1
    assert alone.device.cache_bytes >= 2**16
    assert alone.device.name


def test_a_card_that_cannot_be_used_is_said_before_the_cpu_is_measured() -> None:
    """A reader with a card who gets a CPU's figures without a word would compare nonsense."""
    found = find_device(torch_with(fault="The NVIDIA driver on your system is too old (11040)"))
    assert found.kind == "cpu"
    assert "measuring the CPU, since no CUDA card can be used" in found.warnings[0]
    assert "driver is too old" in found.warnings[0]


@pytest.mark.parametrize(
    ("torch", "words"),
    [
        (torch_with(cuda=None), "a build without CUDA"),
        (torch_with(count=0), "the driver shows no card"),
        (torch_with(fault="The NVIDIA driver on your system is too old"), "driver is too old"),
        (torch_with(fault="CUDA error: no kernel image is available"), "no kernels for this card"),
        (torch_with(fault="Found no NVIDIA driver on your system."), "Found no NVIDIA driver"),
    ],
)
def test_a_wanted_card_that_cannot_be_used_is_an_error(torch: Any, words: str) -> None:
    with pytest.raises(CannotMeasureError, match=f"no CUDA card can be used: .*{words}"):
        find_device(torch, "cuda")


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(ValueError, match="device='tpu' is not known; give auto, cpu or cuda"):
        find_device(torch_with(), "tpu")
    with pytest.raises(ValueError, match="threads=0 is below 1"):
        find_device(torch_with(), "cpu", threads=0)


def test_missing_torch_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(machine.importlib, "import_module", missing)
    with pytest.raises(CannotMeasureError, match=r"pip install .*\[gpu\]"):
        need_torch()


@pytest.mark.parametrize(
    "error",
    [
        ModuleNotFoundError("No module named 'sympy'", name="sympy"),
        OSError("libtorch_cpu.so: cannot open shared object file"),
    ],
)
def test_broken_torch_is_no_missing_torch(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def breaks(name: str) -> Any:
        raise error

    monkeypatch.setattr(machine.importlib, "import_module", breaks)
    with pytest.raises(CannotMeasureError, match="installed but does not load"):
        need_torch()


def test_a_busy_card_is_said() -> None:
    gib = 2**30
    assert card_warnings({}, 79 * gib, 80 * gib) == ()
    assert card_warnings({"utilization.gpu": "3"}, 79 * gib, 80 * gib) == ()
    said = card_warnings(
        {"utilization.gpu": "97", "mig.mode.current": "Enabled"}, 20 * gib, 80 * gib
    )
    assert ["97 % busy" in said[0], "60.0 of" in said[1], "MIG" in said[2]] == [True] * 3


def test_a_busy_processor_gets_fewer_threads() -> None:
    """Two threads that wait for each other beside a busy program are slower than one."""
    assert threads_beside(0.1, 8) == (8, ())
    threads, words = threads_beside(0.6, 8)
    assert threads == 3
    assert "only 3 of 8 threads measured" in words[0]
    threads, words = threads_beside(0.9, 8, wanted=8)
    assert threads == 8
    assert "only" not in words[0]
    assert threads_beside(1.0, 1)[0] == 1


def test_caches_are_read_as_the_kernel_writes_them(tmp_path: Path) -> None:
    assert last_level_cache_bytes(tmp_path) == 64 * 2**20
    for index, text in enumerate(("48K", "2048K", "307200K", "strange")):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(text + "\n", "ascii")
    assert last_level_cache_bytes(tmp_path) == 300 * 2**20


def answer(monkeypatch: pytest.MonkeyPatch, text: str | Exception) -> list[list[str]]:
    """Let nvidia-smi say `text`; return where the commands are kept."""
    asked: list[list[str]] = []

    def run(command: list[str], **_: Any) -> Any:
        asked.append(command)
        if isinstance(text, Exception):
            raise text
        return SimpleNamespace(stdout=text)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(machine, "nvidia_smi", nvidia_smi)
    return asked


def test_clocks_are_kept_as_found(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answer(monkeypatch, "345, 3201, 1980, [N/A]\n")
    assert clocks_mhz("before", "GPU-1") == {
        "sm_before": 345.0, "memory_before": 3201.0, "sm_limit_before": 1980.0
    }  # fmt: skip
    assert "--id=GPU-1" in asked[0]


@pytest.mark.parametrize(
    "text",
    [
        FileNotFoundError("nvidia-smi"),
        subprocess.TimeoutExpired("nvidia-smi", 10),
        "No devices were found\n",
        "",
        "a, b, c, d\n",
    ],
)
def test_without_nvidia_smi_there_are_no_clocks(
    monkeypatch: pytest.MonkeyPatch, text: str | Exception
) -> None:
    """A container often has the driver and not the tool; that is no reason to stop."""
    answer(monkeypatch, text)
    assert clocks_mhz("before", "0") == {}
