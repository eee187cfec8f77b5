"""What commands about a served model share: its cards, what to trust, patience."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from course.serving.pricing import RooflineStepCost


class Precision(StrEnum):
    """Of weights and arithmetic; the cache stays in bf16."""

    bf16 = "bf16"
    fp8 = "fp8"


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
