"""Where the course's own files lie; nothing is read or written here."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ROOT / "notebooks"
DATA = ROOT / "data"
WORK = ROOT / "work"
