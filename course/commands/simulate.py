"""``python -m course simulate``: a reader's own trace through the engine; no rule lives here."""

from __future__ import annotations

from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from course.commands._server import (
    LOAD,
    FirstRequests,
    Precision,
    TraceFile,
    cards_of,
    limit_option,
    trust_words,
    waiting,
)
from course.commands._targets import check_sources, check_targets
from course.commands._written import write_json

if TYPE_CHECKING:
    from course.serving.pricing import LinearStepCost, RooflineStepCost, StepCost
    from course.serving.traces import TraceRun


class Order(StrEnum):
    """Orders of the waiting queue that a trace has everything for."""

    fcfs = "fcfs"
    sjf = "sjf"


_COST = "What a step costs"
_ENGINE = "The engine"
_OUT = "What comes out"


def simulate(
    trace: TraceFile,
    rate: Annotated[
        float | None,
        typer.Option(help="Rescale to so many requests a second", rich_help_panel=LOAD),
    ] = None,
    limit: FirstRequests = None,
    gpu: Annotated[
        str | None,
        typer.Option(help="A card of the catalogue, with --model", rich_help_panel=_COST),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="A model of the catalogue, with --gpu", rich_help_panel=_COST),
    ] = None,
    n_gpus: Annotated[
        int,
        typer.Option(help="Cards that share the model (tensor parallel)", rich_help_panel=_COST),
    ] = 1,
    precision: Annotated[
        Precision, typer.Option(help="Of weights and arithmetic", rich_help_panel=_COST)
    ] = Precision.bf16,
    fixed_s: Annotated[
        float | None,
        typer.Option(help="Seconds of every step", show_default="0.010", rich_help_panel=_COST),
    ] = None,
    per_prefill_token_s: Annotated[
        float | None,
        typer.Option(help="Seconds a prompt token", show_default="3e-5", rich_help_panel=_COST),
    ] = None,
    per_prefill_pair_s: Annotated[
        float | None,
        typer.Option(
            help="Seconds a prompt token and a token that it attends to",
            show_default="1e-9",
            rich_help_panel=_COST,
        ),
    ] = None,
    per_decode_seq_s: Annotated[
        float | None,
        typer.Option(help="Seconds a decoding request", show_default="1e-4", rich_help_panel=_COST),
    ] = None,
    per_kv_token_s: Annotated[
        float | None,
        typer.Option(
            help="Seconds a cached token read", show_default="2e-8", rich_help_panel=_COST
        ),
    ] = None,
    max_num_seqs: Annotated[
        int, typer.Option(help="Requests that may run at once", rich_help_panel=_ENGINE)
    ] = 256,
    max_num_batched_tokens: Annotated[
        int, typer.Option(help="Tokens that one step may compute", rich_help_panel=_ENGINE)
    ] = 2048,
    num_kv_blocks: Annotated[
        str,
        typer.Option(
            help="A number, none, or auto: what the card's memory leaves beside the weights "
            "(without a card: none)",
            rich_help_panel=_ENGINE,
        ),
    ] = "auto",
    block_size: Annotated[
        int, typer.Option(help="Tokens a KV block", rich_help_panel=_ENGINE)
    ] = 16,
    chunked_prefill: Annotated[
        bool,
        typer.Option(
            help="Prompts in pieces beside decoding, or whole prompts first",
            rich_help_panel=_ENGINE,
        ),
    ] = True,
    order: Annotated[
        Order, typer.Option(help="Of the waiting queue", rich_help_panel=_ENGINE)
    ] = Order.fcfs,
    slo_ttft: Annotated[float | None, limit_option("TTFT", _OUT)] = None,
    slo_tpot: Annotated[float | None, limit_option("TPOT", _OUT)] = None,
    slo_quantile: Annotated[
        float, typer.Option(help="Share that has to meet the limits", rich_help_panel=_OUT)
    ] = 0.99,
    csv: Annotated[
        Path | None, typer.Option(help="Write one row a request", rich_help_panel=_OUT)
    ] = None,
    json: Annotated[
        Path | None, typer.Option(help="Write the summary", rich_help_panel=_OUT)
    ] = None,
) -> None:
    """Simulate your own trace, and say how it would have been served.

    The cost of a step comes from a card's and a model's data sheets (--gpu and --model), from five
    prices of your own. Prices that you do not give are round numbers that are no card's.
    """
    from course.serving.engine import EngineConfig, warm_steps
    from course.serving.requests import SLO
    from course.serving.traces import load_trace, simulate_trace, trace_notes, trace_report

    check_sources([trace])
    check_targets({trace: "the file of --trace"}, {"--csv": csv, "--json": json})
    prices = {
        "fixed_s": fixed_s,
        "per_prefill_token_s": per_prefill_token_s,
        "per_prefill_pair_s": per_prefill_pair_s,
        "per_decode_seq_s": per_decode_seq_s,
        "per_kv_token_s": per_kv_token_s,
    }
    cards = cards_of(gpu, model, n_gpus, precision)
    cost, cost_words = _cost(cards, prices)
    config = EngineConfig(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        enable_chunked_prefill=chunked_prefill,
        num_kv_blocks=_blocks(num_kv_blocks, cards, block_size),
        block_size=block_size,
        order=order.value,
    )
    slo = SLO(slo_ttft, slo_tpot, quantile=slo_quantile)
    with waiting(f"reading {trace.name}"):
        requests = load_trace(trace)
    with waiting("loading the engine (compiled once, then kept on disk)"):
        warm_steps()[0][1]()
    found = simulate_trace(
        requests, cost, config, rate_per_s=rate, limit=limit,
        slo=slo if slo.exists else None, cost_words=cost_words,
    )  # fmt: skip
    with waiting("adding up"):
        words = trace_report(found)
        hopeless = _out_of_reach(found)
    typer.echo(words)
    if hopeless:
        typer.echo(f"! {hopeless}")
    if csv is not None:
        with waiting(f"writing {csv.name}"):
            found.to_frame().to_csv(csv, lineterminator="\n")
        typer.echo(f"One row a request: {csv}")
    if json is not None:
        notes = [*trace_notes(found), *([hopeless] if hopeless else [])]
        summary = {**found.as_dict(), "notes": notes}
        write_json(json, summary, "The summary")


def _out_of_reach(found: TraceRun) -> str:
    """What no number of replicas can keep; "" where each request keeps the SLO by itself."""
    from course.serving.load import broken_words, in_an_empty_server
    from course.words import percent

    slo, run = found.slo, found.run
    if slo is None or not len(run):
        return ""
    broken, kept = in_an_empty_server(run.work, run.cost, [run.config], slo)
    # who is refused is told above, with the limit that it exceeds
    told = broken_words({name: share for name, share in broken.items() if name != "refused"})
    if not told:
        return ""
    words = f"Even in an empty server {told}: no number of replicas mends that"
    if kept < slo.quantile:
        words += (
            f", so the SLO cannot be had here: at most {percent(round(kept, 3))} of the requests "
            f"can keep it, {percent(slo.quantile)} have to"
        )
    return words + "."


def _cost(cards: RooflineStepCost | None, prices: dict[str, float | None]) -> tuple[StepCost, str]:
    """Return the cost that the options ask for, and a sentence on where it comes from."""
    from course.serving.traces import MADE_UP_COST

    given = {name: price for name, price in prices.items() if price is not None}
    if cards is not None:
        if given:
            option = f"--{next(iter(given)).replace('_', '-')}"
            raise ValueError(f"{option} and --gpu both set the cost; leave one of them out")
        return cards, trust_words(cards)
    if given:
        cost = replace(MADE_UP_COST, **given)
        return cost, f"your own prices, {_price_list(cost)}"
    return MADE_UP_COST, (
        f"round numbers that are no card's, {_price_list(MADE_UP_COST)}; "
        "name --gpu and --model for an estimate from data sheets"
    )


def _price_list(cost: LinearStepCost) -> str:
    return ", ".join(f"{name}={price:g}" for name, price in asdict(cost).items() if price)


def _blocks(text: str, cards: RooflineStepCost | None, block_size: int) -> int | None:
    """Return the number of KV blocks that --num-kv-blocks asks for."""
    if text == "none" or (text == "auto" and cards is None):
        return None
    if text == "auto" and cards is not None:
        return cards.kv_blocks(block_size)
    try:
        return int(text)
    except ValueError:
        raise ValueError(
            f"--num-kv-blocks={text!r} is neither a whole number nor auto nor none"
        ) from None
