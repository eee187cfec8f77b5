"""``python -m course knee``: the knee of a reader's own sweep; no knee is defined here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from course.commands._server import limit_option
from course.commands._targets import check_sources, check_targets
from course.commands._written import tell, write_json

if TYPE_CHECKING:
    from course.serving.load import LoadRow

_READ = "How the files are read"
_SLO = "What was promised"
_OUT = "What comes out"


def knee(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Result files of one sweep or of several: vLLM, SGLang, GuideLLM, AIPerf, "
            "inference-perf, InferenceX; or tables separated by commas with a line a load"
        ),
    ],
    slo_ttft: Annotated[float | None, limit_option("TTFT", _SLO)] = None,
    slo_tpot: Annotated[float | None, limit_option("TPOT", _SLO)] = None,
    slo_itl: Annotated[float | None, limit_option("ITL", _SLO)] = None,
    slo_e2e: Annotated[float | None, limit_option("E2E", _SLO)] = None,
    slo_stat: Annotated[
        str,
        typer.Option(
            help="The statistic that has to keep the limits: P99, P95, mean, median …",
            rich_help_panel=_SLO,
        ),
    ] = "P99",
    columns: Annotated[
        str,
        typer.Option(
            help="Columns of a CSV that have other names, as "
            "users=COLUMN,tokens=COLUMN,p99_ttft_ms=COLUMN",
            rich_help_panel=_READ,
        ),
    ] = "",
    svg: Annotated[Path | None, typer.Option(help="Draw the curves", rich_help_panel=_OUT)] = None,
    json: Annotated[
        Path | None, typer.Option(help="Write everything for machines", rich_help_panel=_OUT)
    ] = None,
) -> None:
    """Find where a measured sweep has its knee, by three definitions; status 1 without a curve.

    Runs of one tool and model with the same lengths are joined to a curve over their users or
    their rate. A load that the client could not offer stands at what it did offer.
    """
    from course.serving.load import gathered, measured_sweeps, report

    check_sources(files)
    check_targets(dict.fromkeys(files, "an input too"), {"--svg": svg, "--json": json})
    asked = {"TTFT": slo_ttft, "TPOT": slo_tpot, "ITL": slo_itl, "E2E": slo_e2e}
    limits = {name: limit_s for name, limit_s in asked.items() if limit_s is not None}
    stat = _statistic(slo_stat)
    rows, said = _read(files, _pairs(columns))
    reports = [report(sweep, limits, stat) for sweep in measured_sweeps(rows)]
    blocks = [one.as_text() for one in reports]
    if said:
        blocks.append("\n".join(f"! {text}" for text in said))
    if reports and not limits:
        blocks.append("No SLO was given, so none was judged: add --slo-ttft, --slo-tpot …")
    typer.echo("\n\n".join(blocks))
    if json is not None:
        write_json(json, gathered(reports, said), "Everything as JSON")
    if svg is not None and reports:
        _write_svg(svg, reports)
    raise typer.Exit(not reports)


def _read(files: list[Path], columns: dict[str, str]) -> tuple[list[LoadRow], list[str]]:
    """Return the rows of all files, and what is to be said of files and of runs left out."""
    from course.serving.load import is_table, load_table, rows_of_result
    from course.serving.results import load_result

    rows: list[LoadRow] = []
    said: list[str] = []
    for path in dict.fromkeys(files):
        if is_table(path):
            rows += load_table(path, columns)
        else:
            found, words = rows_of_result(load_result(path))
            rows += found
            said += words
    return rows, said


def _pairs(text: str) -> dict[str, str]:
    """Return role -> column from "role=column,role=column"."""
    pairs = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        role, equals, column = part.partition("=")
        if not equals or not role.strip() or not column.strip():
            raise ValueError(f"--columns has {part!r}; give ROLE=COLUMN, as users=my_users")
        if role.strip().lower() in pairs:
            raise ValueError(f"--columns gives {role.strip()} twice; give it one column")
        pairs[role.strip().lower()] = column.strip()
    return pairs


def _statistic(text: str) -> str:
    from course.serving.load import statistic_named

    try:
        return statistic_named(text)
    except ValueError:
        wanted = "give P99, P95, P90, mean or median"
        raise ValueError(f"--slo-stat={text!r} is not known; {wanted}") from None


def _write_svg(path: Path, reports: list[Any]) -> None:
    import matplotlib as mpl

    from course.figures.knee import alt_text, knee_figure

    figure = knee_figure(reports)
    # the same picture gives the same bytes
    with mpl.rc_context({"svg.hashsalt": "knee", "svg.fonttype": "none"}):
        figure.savefig(
            path, format="svg", metadata={"Date": None, "Description": alt_text(reports)}
        )
    tell("The curves", path)
