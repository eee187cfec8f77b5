"""``python -m course plan``: how many replicas a trace needs, and why; nothing is planned here."""

from __future__ import annotations

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
from course.commands._written import tell, write_json

if TYPE_CHECKING:
    from course.serving.load import Option, ReplicaPlan, ReplicaReport
    from course.serving.pricing import RooflineStepCost
    from course.serving.requests import SLO
    from course.serving.workload import Workload

_SERVER = "The servers"
_SLO, _OUT = "What is promised", "What comes out"


class RouterName(StrEnum):
    """How requests are dealt to the replicas."""

    round_robin = "round-robin"
    random = "random"


def plan(
    trace: TraceFile,
    gpu: Annotated[str, typer.Option(help="A card of the catalogue", rich_help_panel=_SERVER)],
    model: Annotated[str, typer.Option(help="A model of the catalogue", rich_help_panel=_SERVER)],
    rate: Annotated[
        float | None,
        typer.Option(
            help="Rescale to so many requests a second in all (bursts are stretched with it)",
            rich_help_panel=LOAD,
        ),
    ] = None,
    limit: FirstRequests = None,
    n_gpus: Annotated[
        int, typer.Option(help="Cards a replica (tensor parallel)", rich_help_panel=_SERVER)
    ] = 1,
    precision: Annotated[
        Precision, typer.Option(help="Of weights and arithmetic", rich_help_panel=_SERVER)
    ] = Precision.bf16,
    replicas: Annotated[
        str,
        typer.Option(
            help="Numbers to try, as 2,3,4; otherwise the fewest that do are looked for",
            rich_help_panel=_SERVER,
        ),
    ] = "",
    most: Annotated[
        int, typer.Option(help="Look no further than so many replicas", rich_help_panel=_SERVER)
    ] = 64,
    max_num_seqs: Annotated[
        str, typer.Option(help="Seats to try, separated by commas", rich_help_panel=_SERVER)
    ] = "64,128,256",
    max_num_batched_tokens: Annotated[
        str, typer.Option(help="Tokens a step to try", rich_help_panel=_SERVER)
    ] = "2048,8192",
    block_size: Annotated[
        int, typer.Option(help="Tokens a KV block", rich_help_panel=_SERVER)
    ] = 16,
    router: Annotated[
        RouterName, typer.Option(help="How requests are dealt out", rich_help_panel=_SERVER)
    ] = RouterName.round_robin,
    price: Annotated[
        float | None,
        typer.Option(
            help="USD a card and hour",
            show_default="median of the catalogue's offers",
            rich_help_panel=_SERVER,
        ),
    ] = None,
    slo_ttft: Annotated[float | None, limit_option("TTFT", _SLO)] = None,
    slo_tpot: Annotated[float | None, limit_option("TPOT", _SLO)] = None,
    slo_e2e: Annotated[float | None, limit_option("E2E", _SLO)] = None,
    slo_quantile: Annotated[
        float,
        typer.Option(help="Share of the requests that keeps every limit", rich_help_panel=_SLO),
    ] = 0.95,
    json: Annotated[
        Path | None, typer.Option(help="Write everything for machines", rich_help_panel=_OUT)
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(
            "--html", help="Write a page to read, to print and to send on", rich_help_panel=_OUT
        ),
    ] = None,
) -> None:
    """Find the fewest replicas that hold a promise on a trace; status 1 where none do.

    Every option is simulated step by step on the whole trace, dealt out to equal replicas.
    """
    from course.serving.engine import warm_steps
    from course.serving.load import ReplicaReport
    from course.serving.requests import SLO

    check_sources([trace])
    check_targets({trace: "the file of --trace"}, {"--json": json, "--html": page})
    slo = SLO(slo_ttft, slo_tpot, slo_e2e, quantile=slo_quantile)
    if not slo.exists:
        raise ValueError(
            "nothing is promised; give --slo-ttft, --slo-tpot or --slo-e2e, in seconds"
        )
    cards = cards_of(gpu, model, n_gpus, precision)
    assert cards is not None
    numbers = {
        name: _numbers(f"--{name}", text)
        for name, text in (
            ("max-num-seqs", max_num_seqs),
            ("max-num-batched-tokens", max_num_batched_tokens),
            ("replicas", replicas),
        )
    }
    with waiting(f"reading {trace.name}"):
        work, notes = _traffic(trace, rate, limit)
    with waiting("loading the engine (compiled once, then kept on disk)"):
        warm_steps()[0][1]()
    found = _planned(work, cards, numbers, slo, most, block_size, router)
    usd, usd_words = _price(cards, price)
    notes += [
        f"A step's cost is that of {trust_words(cards)}.",
        usd_words,
        "Replicas get their requests without looking at one another "
        f"({router.value}); a router that sees their queues mostly needs as many or fewer.",
        "One trace is one day: another may be heavier. Nothing is kept for failures or growth.",
    ]
    report = ReplicaReport(found, n_gpus, usd, tuple(notes))
    typer.echo(report.as_text())
    if json is not None:
        write_json(json, report.as_dict(), "Everything as JSON")
    if page is not None:
        _write_page(page, report, f"{model} on {n_gpus} × {gpu}, {trace.name}")
    raise typer.Exit(found.best is None)


def _numbers(option: str, text: str) -> list[int]:
    """Return whole numbers from "64,128"; ValueError names the option."""
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        if not part.isascii() or not part.isdigit() or int(part) < 1:
            raise ValueError(f"{option} has {part!r}; give whole numbers above 0, as 64,128")
        found.append(int(part))
    return list(dict.fromkeys(found))


def _traffic(trace: Path, rate: float | None, limit: int | None) -> tuple[Workload, list[str]]:
    from course.serving._arguments import whole
    from course.serving.traces import load_trace
    from course.serving.workload import Workload

    read = load_trace(trace)
    work = Workload(read.arrival_s, read.prompt_tokens, read.output_tokens)
    notes = list(read.warnings)
    if limit is not None:
        work = work.first(whole("--limit", limit, low=2))
    if rate is not None:
        work = work.scaled(rate)
        notes.append(
            f"The trace was rescaled to {rate:g} requests/s: its bursts are as much longer or "
            "shorter, which is not what more or fewer users would do."
        )
    return work, notes


def _planned(
    work: Workload,
    cards: RooflineStepCost,
    numbers: dict[str, list[int]],
    slo: SLO,
    most: int,
    block_size: int,
    router: RouterName,
) -> ReplicaPlan:
    from tqdm import tqdm

    from course.serving.engine import EngineConfig
    from course.serving.load import plan_replicas

    blocks = cards.kv_blocks(block_size)
    configs = [
        EngineConfig(seats, budget, num_kv_blocks=blocks, block_size=block_size)
        for seats in numbers["max-num-seqs"]
        for budget in numbers["max-num-batched-tokens"]
    ]
    with tqdm(desc="fleets simulated", unit="", delay=1, leave=False, disable=None) as bar:

        def show(_: Option) -> None:
            bar.update()

        return plan_replicas(
            work, cards, configs, slo, most=most, replicas=numbers["replicas"] or None,
            router="random" if router is RouterName.random else "round_robin", progress=show,
        )  # fmt: skip


def _price(cards: RooflineStepCost, given: float | None) -> tuple[float | None, str]:
    """Return USD a card and hour, and where it is from."""
    from statistics import median

    from course.serving import catalog
    from course.serving._arguments import at_least

    if given is not None:
        return at_least("--price", given), f"Your price: {given:g} USD a card and hour."
    offers = catalog.prices(cards.gpu.name)
    if not offers:
        return None, f"No price of a {cards.gpu.name} is known here; give --price for the money."
    usd = median(offer.usd_per_gpu_hour for offer in offers)
    few = "the one offer" if len(offers) == 1 else f"the median of {len(offers)} offers"
    return usd, f"{usd:g} USD a {cards.gpu.name} and hour is {few} in the catalogue; see data/."


def _write_page(path: Path, report: ReplicaReport, title: str) -> None:
    from course.commands._page import Page, svg_of
    from course.figures.replicas import alt_text, replicas_figure

    picture = svg_of(replicas_figure(report), alt_text(report), "plan")
    text = report.as_text().split("\n", 1)[0]
    written = Page(
        f"How many replicas: {title}", report.answer, (report.why_not_cheaper, text),
        report.table(), picture, report.notes,
    )  # fmt: skip
    path.write_text(written.as_html(), encoding="utf-8")
    tell("A page to read", path)
