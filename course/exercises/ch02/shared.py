"""How long the exercises of notebook 02 simulate; no exercise is here."""

from __future__ import annotations

SIMULATED = 200_000
"""Requests: enough to see a P99 to a few per cent."""
