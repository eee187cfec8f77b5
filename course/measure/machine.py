"""Finds the device to measure on and says what it is and who else uses it; times nothing.

Torch is imported here, when asked for; every fault of its installation becomes a sentence.
"""

from __future__ import annotations

import importlib
import math
import os
import platform
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from course.measure.record import Device
from course.serving._arguments import whole

_UNKNOWN_CACHE_BYTES = 64 * 2**20
_BUSY_SHARE = 0.25
_OTHERS_BYTES = 2 * 2**30
_SMI_CLOCKS = {
    "clocks.sm": "sm",
    "clocks.mem": "memory",
    "clocks.max.sm": "sm_limit",
    "clocks.max.mem": "memory_limit",
}


class CannotMeasureError(ValueError):
    """There is no torch, or not the device that was asked for; the message says what to do."""


@dataclass(frozen=True)
class Found:
    """The device to use: its kind for torch, the facts, and what the reader should know first.

    `card` is what nvidia-smi calls a card; the number that torch uses may count fewer cards.
    The threads that torch is to use stand in `device`.
    """

    kind: str
    device: Device
    warnings: tuple[str, ...]
    card: str = ""


def need_torch() -> Any:
    """Return the torch module; raise CannotMeasureError, with how to install it, without one."""
    try:
        return importlib.import_module("torch")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise CannotMeasureError(_broken(error)) from None
        raise CannotMeasureError(
            "torch is not installed, and measuring needs it (nothing else here does): "
            '`pip install -c constraints.txt -e ".[gpu]"` in the course\'s folder; on a machine '
            "without a GPU take PyTorch's CPU build instead (README, Other ways to install). "
            "Recorded runs can be read without it"
        ) from None
    except (ImportError, OSError) as error:
        raise CannotMeasureError(_broken(error)) from None


def _broken(error: BaseException) -> str:
    return f"torch is installed but does not load ({error}); install it again"


def find_device(torch: Any, wanted: str = "auto", threads: int | None = None) -> Found:
    """Return the device to measure: `cpu`, `cuda`, or with `auto` a card if one can be used.

    `threads`: that the CPU is to compute with, its own choice if left out.
    Raises CannotMeasureError where `cuda` is wanted and cannot be used, with the reason.
    """
    if threads is not None:
        threads = whole("threads", threads, high=4096)
    if wanted not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device={wanted!r} is not known; give auto, cpu or cuda")
    if wanted != "cpu":
        fault = cuda_fault(torch)
        if not fault:
            return _card(torch)
        if wanted == "cuda":
            raise CannotMeasureError(f"no CUDA card can be used: {fault}")
    note: tuple[str, ...] = ()
    if wanted == "auto" and torch.version.cuda is not None:
        note = (f"measuring the CPU, since no CUDA card can be used: {fault}",)
    found = _processor(torch, threads)
    return replace(found, warnings=note + found.warnings)


def cuda_fault(torch: Any) -> str:
    """Return why no CUDA card can be used, or nothing where one can."""
    if torch.version.cuda is None:
        return "this torch is a build without CUDA; install one with it (README)"
    try:
        torch.cuda.init()
        if torch.cuda.device_count() == 0:
            return "the driver shows no card; look at `nvidia-smi` and CUDA_VISIBLE_DEVICES"
        # a card that is too old or too new for this build only says so when it computes
        torch.ones(1, device="cuda").sum().item()
    except (RuntimeError, AssertionError) as error:
        from course.measure.timing import fault_words

        return fault_words(error)
    return ""


def nvidia_smi(fields: tuple[str, ...], card: str) -> dict[str, str]:
    """Return what nvidia-smi says of a card, by field; empty without it or an answer."""
    command = [
        "nvidia-smi", f"--id={card}", f"--query-gpu={','.join(fields)}",
        "--format=csv,noheader,nounits",
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=10, check=True, encoding="utf-8"
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    cells = [cell.strip() for cell in done.stdout.strip().split("\n")[0].split(",")]
    if len(cells) != len(fields):
        return {}
    return {name: cell for name, cell in zip(fields, cells, strict=True) if "[" not in cell}


def clocks_mhz(when: str, card: str) -> dict[str, float]:
    """Return the card's clocks as found, in MHz, under names that end in `when`; maybe none."""
    said = nvidia_smi(tuple(_SMI_CLOCKS), card)
    clocks = {}
    for name, text in said.items():
        try:
            clocks[f"{_SMI_CLOCKS[name]}_{when}"] = float(text)
        except ValueError:
            continue
    return clocks


def card_warnings(said: dict[str, str], free_bytes: int, total_bytes: int) -> tuple[str, ...]:
    """Return what may disturb a measurement on a card, in sentences.

    `said` comes from nvidia-smi, the bytes from the driver before anything of ours lies there.

    >>> card_warnings({"utilization.gpu": "97"}, 70 * 2**30, 80 * 2**30)[0]
    'the card was 97 % busy before the run: another program computes on it, so times are too long'
    """
    warnings = []
    busy = said.get("utilization.gpu", "")
    if busy.isdigit() and int(busy) > 10:
        warnings.append(
            f"the card was {busy} % busy before the run: another program computes on it, "
            "so times are too long"
        )
    others = total_bytes - free_bytes
    if others > _OTHERS_BYTES:
        warnings.append(
            f"{others / 2**30:.1f} of the card's {total_bytes / 2**30:.1f} GiB were taken before "
            "the run; another program holds them (`nvidia-smi` names it)"
        )
    if said.get("mig.mode.current") == "Enabled":
        warnings.append("the card is split (MIG): the figures are those of one slice")
    return tuple(warnings)


def _card(torch: Any) -> Found:
    properties = torch.cuda.get_device_properties(0)
    uuid = getattr(properties, "uuid", None)
    card = f"GPU-{uuid}" if uuid else "0"
    said = nvidia_smi(("driver_version", "utilization.gpu", "mig.mode.current"), card)
    free, total = torch.cuda.mem_get_info()
    cache = int(getattr(properties, "L2_cache_size", 0)) or 2 * _UNKNOWN_CACHE_BYTES
    device = Device(
        kind="cuda", name=str(properties.name), platform=_platform(),
        processors=int(properties.multi_processor_count), threads=int(torch.get_num_threads()),
        memory_bytes=int(total), cache_bytes=cache,
        instructions=f"sm_{properties.major}{properties.minor}",
        driver=said.get("driver_version"), cuda=str(torch.version.cuda),
        torch=str(torch.__version__), python=platform.python_version(),
        clocks_mhz=clocks_mhz("before", card),
    )  # fmt: skip
    return Found("cuda", device, card_warnings(said, int(free), int(total)), card)


def _processor(torch: Any, threads: int | None) -> Found:
    import psutil

    busy = psutil.cpu_percent(interval=0.5) / 100
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    chosen, warnings = threads_beside(busy, int(torch.get_num_threads()), threads)
    device = Device(
        kind="cpu", name=processor_name(), platform=_platform(),
        processors=cores or 1, threads=chosen,
        memory_bytes=int(psutil.virtual_memory().total), cache_bytes=last_level_cache_bytes(),
        instructions=_instructions(torch), driver=None, cuda=None,
        torch=str(torch.__version__), python=platform.python_version(),
    )  # fmt: skip
    return Found("cpu", device, warnings)


def threads_beside(
    busy: float, threads: int, wanted: int | None = None
) -> tuple[int, tuple[str, ...]]:
    """Return the threads to compute with beside others that use `busy` of the processor, and why.

    `threads` is torch's own number; `wanted`, where given, is taken as it is.

    Threads of one product wait for each other, so a single one that has to queue for its core
    makes every product last as long as the operating system's time slice.

    >>> threads_beside(0.6, 2)[0], threads_beside(0.1, 2)[0]
    (1, 2)
    """
    if busy <= _BUSY_SHARE:
        return wanted or threads, ()
    fewer = max(1, min(threads, math.floor(threads * (1 - busy) + 0.5)))
    words = f"other programs used {busy:.0%} of the processor just before the run, so "
    if wanted is None and fewer < threads:
        words += f"only {fewer} of {threads} threads measured; "
    return wanted or fewer, (words + "times may be too long; close them and measure again",)


def _instructions(torch: Any) -> str:
    """Return the widest vector instructions, and AMX where Linux shows it, for bf16 lives on it."""
    words = [str(torch.backends.cpu.get_cpu_capability())]
    flags = _cpuinfo("flags").split()
    words += [flag for flag in ("avx512_bf16", "amx_bf16") if flag in flags]
    return " ".join(words)


def _platform() -> str:
    return f"{platform.system()} {platform.machine()}"


def processor_name() -> str:
    """Return the processor as it names itself, or its architecture."""
    name = _cpuinfo("model name")
    if not name and sys.platform == "darwin":
        name = _sysctl("machdep.cpu.brand_string")
    return name or platform.processor() or platform.machine()


def last_level_cache_bytes(folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int:
    """Return the largest cache that the operating system tells of, or 64 MiB if none."""
    sizes = [_cache_size(path) for path in folder.glob("index*/size")]
    if sys.platform == "darwin":
        sizes += [int(_sysctl(f"hw.l{level}cachesize") or 0) for level in (2, 3)]
    return max(sizes, default=0) or _UNKNOWN_CACHE_BYTES


def _cache_size(path: Path) -> int:
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    try:
        text = path.read_text(encoding="ascii").strip()
        return int(text[:-1]) * units[text[-1]]
    except (OSError, ValueError, KeyError, IndexError):
        return 0


def _cpuinfo(key: str) -> str:
    """Return the first value of a key in /proc/cpuinfo, or nothing."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    return next((value.strip() for name, value in pairs if name.strip() == key), "")


def _sysctl(name: str) -> str:
    try:
        done = subprocess.run(
            ["sysctl", "-n", name],
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
