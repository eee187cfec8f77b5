"""Where compiled loops are kept on disk: `compiled`, numba's `njit` with a cache of our own.

numba keeps a function's machine code by the text of the function's own file: a comment there
empties it, and a change in another file, of a function that is called, goes unnoticed. Here all
kernels share one key, made from what the files of all kernels do (not from comments, docstrings or
line breaks), and a folder of that name: so kernels may call one another across files.

The folder lies beside the code where that can be written, so that two copies of the course never
meet and a class finds ready what was compiled at installation; then in the user's own cache, then
in a temporary folder. What can be read but not written is read; what is missing there is compiled
once and kept at the next place. The environment variable COURSE_CACHE_DIR names another place.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

from numba import njit
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    IndexDataCacheFile,
    _CacheLocator,
)

HOME = Path(__file__).parent
KERNELS = ("engine/kernels/*.py", "queueing/kernels.py")
"""The files of all kernels, below this folder; a kernel that stands elsewhere is refused."""

KEPT = 4
"""Keys kept in one place: that of the code as it is, and a few that somebody may go back to."""

_KEY = re.compile(r"[0-9a-f]{20}")


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a kernel: `njit` with these options, its machine code kept under the kernels' key.

    Raises ValueError for a function that stands in none of the files of `KERNELS`.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        file = Path(function.__code__.co_filename).resolve()
        if file not in kernel_files():
            raise ValueError(
                f"{function.__name__} stands in {file}; compiled code is kept for the files "
                f"{', '.join(KERNELS)} below {HOME} alone: put it there, or add its file"
            )
        made = njit(**options)(function)
        if hasattr(made, "enable_caching"):  # plain functions where numba is switched off
            made._cache = _Kept(function)
        return made

    return decorate


@cache
def kernel_files() -> frozenset[Path]:
    """The files of all kernels."""
    return frozenset(path.resolve() for pattern in KERNELS for path in HOME.glob(pattern))


@cache
def kernel_key() -> str:
    """A name for what all kernels do; the same after a change of comments or of the layout."""
    digest = hashlib.sha256()
    for path in sorted(kernel_files()):
        digest.update(path.stem.encode())
        for part in _parts(_code_of(path.read_text(encoding="utf-8"))):
            digest.update(part)
    return digest.hexdigest()[:20]


def _code_of(source: str) -> CodeType:
    """Source as code, without docstrings."""
    tree = ast.parse(source)
    _without_docstrings(tree)
    return compile(tree, "kernels", "exec", dont_inherit=True)


def _without_docstrings(node: ast.Module | ast.ClassDef | ast.FunctionDef) -> None:
    if ast.get_docstring(node, clean=False) is not None:
        node.body[0].value.value = ""  # type: ignore[attr-defined]
    for inner in node.body:  # every process does this: not a look at each node
        if isinstance(inner, (ast.ClassDef, ast.FunctionDef)):
            _without_docstrings(inner)


def _parts(code: CodeType) -> Iterator[bytes]:
    """What a code object does, and those inside it, without names of files and line numbers."""
    yield code.co_code
    yield repr((code.co_name, code.co_names, code.co_varnames, code.co_argcount)).encode()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _parts(constant)
        else:
            yield repr(constant).encode()


def kernel_folder() -> Path:
    """The folder new machine code of the kernels goes to: the first place that can take it."""
    return _folders()[0]


@cache
def _folders() -> tuple[Path, tuple[Path, ...]]:
    """The folder to write to; then those to read as well, which came before it but take nothing.

    What an installation left in a folder that nobody may write to need not be of use: it may have
    been compiled for another processor, or not all of it.
    """
    ready: list[Path] = []
    for place in _places():
        folder = place / kernel_key()
        try:
            known = folder.is_dir()
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError:
            ready.append(folder)
            continue
        if not known:
            _forget_old(folder)
        return folder, tuple(ready)
    return Path(tempfile.mkdtemp(prefix="course-kernels-")), tuple(ready)


def _places() -> Iterator[Path]:
    """Where compiled code may be kept, the best place first."""
    own = os.environ.get("COURSE_CACHE_DIR")
    if own:
        yield Path(own) / "kernels"
    yield HOME / "__pycache__" / "kernels"
    user = os.environ.get("LOCALAPPDATA") if sys.platform == "win32" else None
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if Path(user or home).is_absolute():  # "~" stays where nobody knows the user's home
        yield Path(user or home) / "throughput-latency-course" / "kernels"
    if hasattr(os, "getuid"):
        folder = Path(tempfile.gettempdir()) / f"throughput-latency-course-{os.getuid()}"
        # what is kept is run: another user's folder of this name is not ours to read
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
            if folder.stat().st_uid == os.getuid() and not folder.is_symlink():
                yield folder / "kernels"


def _forget_old(folder: Path) -> None:
    """Remove all but the last few keys beside a new one; nothing that is not a key."""
    keys = [path for path in folder.parent.iterdir() if _KEY.fullmatch(path.name) and path.is_dir()]
    keys.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for path in keys[KEPT:]:
        if path != folder:
            shutil.rmtree(path, ignore_errors=True)


class _Locator(_CacheLocator):  # type: ignore[misc]
    """Tells numba the folder and the key of the kernels."""

    def __init__(self, file: str) -> None:
        self._file = Path(file)

    def get_cache_path(self) -> str:
        return str(kernel_folder())

    def get_source_stamp(self) -> str:
        return kernel_key()

    def get_disambiguator(self) -> str:
        return self._file.parent.name  # the line number would change with every comment

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _Locator:
        return cls(py_file)


class _KeptImpl(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_Locator,)


class _Kept(FunctionCache):  # type: ignore[misc]
    """One kernel's machine code; a disk that is full or read-only costs time and nothing else."""

    _impl_class = _KeptImpl
    _cache_file: Any

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        own = self._cache_file
        try:
            for folder in (kernel_folder(), *_folders()[1]):
                self._cache_file = IndexDataCacheFile(
                    str(folder), self._impl.filename_base, kernel_key()
                )
                with contextlib.suppress(OSError):
                    found = super().load_overload(sig, target_context)
                    if found is not None:
                        return found
        finally:
            self._cache_file = own
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        with contextlib.suppress(OSError):
            super().save_overload(sig, data)
