"""JupyterLab on a desk of its own, and a real browser before it."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from course.desk import lay_out, quiet_lab
from course.paths import NOTEBOOKS, ROOT

ARTIFACTS = ROOT / "artifacts" / "browser"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run",
]  # fmt: skip


@dataclass(frozen=True)
class Lab:
    """A running JupyterLab: its address with the token, and the folder it shows."""

    port: int
    token: str
    desk: Path

    def url(self, notebook: str) -> str:
        """The address of a notebook, with a fresh workspace."""
        return (
            f"http://127.0.0.1:{self.port}/lab/workspaces/w{secrets.token_hex(4)}/tree/{notebook}"
            f"?reset&token={self.token}"
        )


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def wait_for(url: str, process: subprocess.Popen[bytes], log: Path, seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended: {log.read_text(encoding='utf-8')[-2000:]}")
        try:
            urllib.request.urlopen(url, timeout=2).close()
            return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(
        f"no answer from {url} in {seconds} s: {log.read_text(encoding='utf-8')[-2000:]}"
    )


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """JupyterLab on copies of all notebooks, on this machine alone, ended after the tests."""
    folder = tmp_path_factory.mktemp("lab")
    desk = folder / "work"
    lay_out(NOTEBOOKS, desk)
    settings = folder / "config" / "lab" / "user-settings" / "@jupyterlab" / "notebook-extension"
    settings.mkdir(parents=True)
    # Cells out of sight would otherwise leave the page, and the test looks at all of them.
    (settings / "tracker.jupyterlab-settings").write_text(
        '{"windowingMode": "none"}', encoding="utf-8"
    )
    quiet_lab()
    port, token, log = free_port(), secrets.token_hex(8), folder / "lab.log"
    environment = {
        **os.environ,
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_DATA_DIR": str(folder / "data"),
        "IPYTHONDIR": str(folder / "ipython"),
        "COURSE_PROGRESS": str(folder / "progress.json"),
    }
    command = [
        sys.executable, "-m", "jupyter", "lab", "--no-browser", "--allow-root",
        f"--notebook-dir={desk}", "--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0", f"--IdentityProvider.token={token}",
        "--LabApp.expose_app_in_browser=True", "--LabApp.news_url=None",
    ]  # fmt: skip
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=environment, cwd=desk)
    try:
        wait_for(f"http://127.0.0.1:{port}/api", process, log)
        yield Lab(port, token, desk)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A Chromium of the system, without its background network."""
    if CHROMIUM is None:
        words = "no chromium on this machine: `apt-get install chromium` and run again"
        if os.environ.get("CI"):
            pytest.fail(words)
        pytest.skip(words)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that collects the console's errors in ``page.problems``."""
    context = browser.new_context(viewport={"width": 1360, "height": 1000})
    page = context.new_page()
    page.problems = []
    page.set_default_timeout(30_000)

    def note(words: str) -> None:
        # A favicon, or a translation catalogue that is not installed, is no fault of the course.
        if not re.search(r"favicon|ResizeObserver loop|api/translation", words):
            page.problems.append(words)

    page.on("console", lambda m: note(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: note(str(error)))
    yield page
    context.close()


@pytest.fixture(scope="session")
def artifacts() -> Path:
    """Where screenshots are kept for people to look at."""
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    return ARTIFACTS
