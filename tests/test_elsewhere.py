"""The machine that `tests/elsewhere.py` plays really lacks what Windows lacks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from course.paths import ROOT
from tests import elsewhere


@pytest.mark.parametrize(
    "code",
    [
        "import resource",
        "import os; os.fork()",
        "import os; os.geteuid()",
        "import signal; signal.SIGALRM",
        "open('a.txt', 'w').write('→')",
        "from pathlib import Path; Path('a.txt').write_text('→')",
        "import subprocess, sys; w = [sys.executable, '-c', 'print(chr(129))'];"
        "subprocess.run(w, text=True, capture_output=True, check=True)",
        "from pathlib import Path; Path('a.txt').write_text('\\n', encoding='utf-8');"
        "assert Path('a.txt').read_bytes() == b'\\n'",
    ],
)
def test_what_fails_on_windows_fails_there(code: str, tmp_path: Path) -> None:
    """Otherwise its green says nothing."""
    path = os.pathsep.join([str(ROOT / "tests" / "windows"), str(ROOT)])
    for extra, fails in ((path, True), (str(ROOT), sys.platform == "win32")):
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, timeout=60,
            env={**os.environ, "PYTHONPATH": extra, "PYTHONIOENCODING": "utf-8"}, check=False,
        )  # fmt: skip
        assert (done.returncode != 0) == fails, (extra, done.stderr)


def test_every_line_of_text_gets_the_other_ending(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "a.py").write_bytes(b"1\n2\r\n")
    (here / "a.png").write_bytes(b"\n")
    elsewhere.copy_with_other_lines(here, tmp_path / "there")
    assert (tmp_path / "there" / "a.py").read_bytes() == b"1\r\n2\r\n"
    assert (tmp_path / "there" / "a.png").read_bytes() == b"\n"
