"""What commands about a served model share: its cards, what to trust, patience."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from course.serving.pricing import RooflineStepCost


class Precision(StrEnum):
    """Of weights and arithmetic; the cache stays in bf16."""

    bf16 = "bf16"
    fp8 = "fp8"


LOAD = "The load"
"""The panel of options that say who comes."""

TraceFile = Annotated[
    Path,
    typer.Option(
        help="A trace: Azure, BurstGPT, Mooncake, ServeGen or any CSV with arrival_s, "
        "prompt_tokens, output_tokens",
        rich_help_panel=LOAD,
    ),
]
FirstRequests = Annotated[
    int | None, typer.Option(help="Only the first so many requests", rich_help_panel=LOAD)
]


def limit_option(metric: str, panel: str) -> Any:
    """Return the option for a limit of the SLO, in a command's own panel."""
    return typer.Option(help=f"{metric} limit, seconds", rich_help_panel=panel)


def cards_of(
    gpu: str | None, model: str | None, n_gpus: int, precision: Precision
) -> RooflineStepCost | None:
    """Return the cost of a model on cards; None where none were named.

    Raises ValueError where an option lacks its pair.
    """
    from course.serving.pricing import RooflineStepCost

    if (gpu is None) != (model is None):
        lacking = "--model" if model is None else "--gpu"
        raise ValueError(f"--gpu and --model belong together; add {lacking}")
    if gpu is not None and model is not None:
        return RooflineStepCost(model, gpu, n_gpus, precision.value)
    for option, is_set in (("--n-gpus", n_gpus != 1), ("--precision", precision != "bf16")):
        if is_set:
            raise ValueError(f"{option} is of a card; add --gpu and --model")
    return None


def trust_words(cards: RooflineStepCost) -> str:
    """Return where such a cost comes from, and how far it is known to be off."""
    number = "one" if cards.n_gpus == 1 else str(cards.n_gpus)
    words = (
        f"{cards.model.name} in {cards.precision} on {number} {cards.gpu.name}, estimated from "
        "data sheets alone: expect throughput within about 20 % on nine servers of ten, a "
        "factor 2 or more on a few, and TPOT within about 25 %; two or three measured points "
        "make it better"
    )
    if not cards.is_covered:
        kind = "a mixture of experts" if cards.model.is_moe else "that many cards on such links"
        words += f"; {kind} is outside even that"
    return words


@contextmanager
def waiting(label: str) -> Iterator[None]:
    """Show what is being done, and for how long, while the block takes longer than a second."""
    from tqdm import tqdm

    done = threading.Event()

    def show() -> None:
        if done.wait(1.0):
            return
        with tqdm(bar_format="{desc}: {elapsed}", desc=label, leave=False, disable=None) as bar:
            bar.start_t = time.time() - 1.0
            while not done.wait(0.5):
                bar.refresh()

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
