"""The command line, ``python -m course …``; each command only calls what lives elsewhere."""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

import typer

from course.commands._targets import check_sources, check_targets
from course.commands.bench import bench
from course.commands.knee import knee
from course.commands.new import app as new
from course.commands.plan import plan
from course.commands.predict import predict
from course.commands.simulate import simulate
from course.commands.validate import validate
from course.desk import settle_homes

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Throughput against latency in LLM inference: an open course.",
)


app.command()(simulate)
app.command()(plan)
app.command()(knee)
app.command()(predict)
app.command()(bench)
app.command()(validate)
app.add_typer(new, name="new")


def main() -> None:
    """Run the command line; an expected error becomes one line and exit status 2."""
    codecs.register_error("course.plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="course.plain")
    try:
        homes = settle_homes()
        if homes:
            typer.echo(homes, err=True)
        app()
    except (ValueError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
    except MemoryError:
        typer.echo("error: out of memory; give less at once (a part of the file)", err=True)
        sys.exit(2)


_PLAIN = {"−": "-", "≤": "<=", "≥": ">=", "≈": "~", "≠": "!=", "→": "->", "√": "sqrt", "∞": "inf"}


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Write for a stream what it has no sign for: a file on Windows is not UTF-8 by itself."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end]
    signs = (_PLAIN.get(c, c.encode("ascii", "backslashreplace").decode("ascii")) for c in lost)
    return "".join(signs), error.end


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def lab(
    context: typer.Context,
    browser: Annotated[bool, typer.Option(help="Open the web browser")] = True,
    start: Annotated[bool, typer.Option(help="Start JupyterLab after preparing")] = True,
    work: Annotated[
        Path | None,
        typer.Option(
            help="The folder for your copies",
            show_default="work in the clone; installed: work in the current directory",
        ),
    ] = None,
) -> None:
    """Prepare the kernels and your copies of the notebooks, then open JupyterLab on them.

    Whatever else is given goes to JupyterLab: --port 8890 --ip 0.0.0.0 --allow-root …
    """
    from course.desk import a_desk, become, lab_command, lay_out, quiet_lab, warm_up
    from course.machine import as_lines, user_finding
    from course.paths import NOTEBOOKS, WORK

    user = user_finding(context.args)
    if start and user.ok is False:
        typer.echo(as_lines(user))
        raise typer.Exit(2)
    desk, elsewhere = a_desk(work.absolute() if work else WORK)
    if elsewhere:
        typer.echo(elsewhere)
    typer.echo("Compiling the simulation kernels (once; kept on disk) …")
    warm_up(_with_progress)
    quiet_lab()
    laid = lay_out(NOTEBOOKS, desk)
    typer.echo(f"Your notebooks are in {desk}")
    for name in laid.copied:
        typer.echo(f"  copied  {name}")
    for name in laid.offered:
        typer.echo(f"  new     {name}  (the course changed it; yours is as you left it)")
    if laid.record_lost:
        typer.echo(
            "  The record of what was copied is missing, damaged or incomplete: each notebook of "
            "yours that differs from the course's has the course's beside it."
        )
    if laid.kept:
        typer.echo(f"  kept    {len(laid.kept)} of yours as they are")
    if start:
        extra = [] if browser else ["--no-browser"]
        # the notebooks' kernels look for the reader's own files in the same folder
        os.environ["COURSE_WORK"] = str(desk)
        # this environment's kernel, whatever kernel of that name the user has elsewhere
        os.environ.setdefault("JUPYTER_PREFER_ENV_PATH", "1")
        raise typer.Exit(become(lab_command(desk, [*extra, *context.args])))


def _with_progress(steps: Iterable[tuple[str, Callable[[], object]]]) -> None:
    from tqdm import tqdm

    steps = list(steps)
    with tqdm(total=len(steps), unit="kernel", file=sys.stdout, ncols=80) as bar:
        for label, work in steps:
            bar.set_description(f"{label:<32.32}")
            work()
            bar.update()


@app.command()
def doctor(
    allow_root: Annotated[bool, typer.Option("--allow-root", help="Root is no fault")] = False,
) -> None:
    """Look whether this machine can run the course, and say how to mend what is wrong."""
    from course.doctor import main

    raise typer.Exit(main(["--allow-root"] if allow_root else []))


@app.command()
def glossary(term: Annotated[str, typer.Argument(help="A term, or nothing for all")] = "") -> None:
    """Print a term's exact definition, or the whole table."""
    from course.glossary import TERMS, glossary

    typer.echo(glossary(term).as_text() if term else "\n".join(t.as_text() for t in TERMS))


@app.command()
def check(
    notebooks: Annotated[list[Path], typer.Argument(help="Notebooks to grade")],
) -> None:
    """Run notebooks strictly and print one line an exercise; exit status 1 if one is missing."""
    from course.exercises.grading import all_passed, check_notebooks, note_lines, result_line

    check_sources(notebooks)
    typer.echo("Running; a line comes as each exercise is judged.", err=True)
    results = check_notebooks(notebooks, judged=lambda result: typer.echo(result_line(result)))
    for line in note_lines(results):
        typer.echo(line)
    raise typer.Exit(not all_passed(results))


@app.command()
def grade(
    folder: Annotated[Path, typer.Argument(help="A folder with a class's notebooks")],
    csv: Annotated[Path, typer.Option(help="Where the table goes")] = Path("grades.csv"),
) -> None:
    """Grade every notebook below a folder, each in a process of its own, into a CSV."""
    from course.exercises.grading import TAMPER_NOTICE, grade_folder, limits_in_force

    check_sources([folder], folder=True)
    check_targets({}, {"--csv": csv})
    typer.echo(limits_in_force())
    results = grade_folder(folder, csv)
    passed = sum(result.passed for result in results)
    typer.echo(f"{passed} of {len(results)} exercises passed; the table is in {csv}")
    typer.echo(TAMPER_NOTICE)


@app.command()
def audit(
    files: Annotated[list[Path], typer.Argument(help="Result files of benchmark tools")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines")] = False,
) -> None:
    """Say what result files report and whether to believe it.

    Status 1 where a file is unusable or a run completed nothing.
    """
    import json

    from course.serving.results import audit_files

    found = audit_files(files)
    typer.echo(json.dumps(found.as_dict(), indent=1) if as_json else found.as_text())
    raise typer.Exit(bool(found.errors) or not found.has_answers)


@app.command()
def replay(
    halves: Annotated[
        bool, typer.Option(help="Fit the price to each log's first half, judge by the second")
    ] = False,
    write: Annotated[bool, typer.Option(help="Also write the committed table anew")] = False,
) -> None:
    """Replay two real vLLM logs in the engine, and print simulated against measured."""
    from course.commands.replay import write_table
    from course.paths import DATA, need_clone
    from course.serving.validation import (
        COMMITTED,
        LOGS,
        RULES,
        fit_first_half,
        halves_text,
        replay_text,
    )
    from course.serving.validation import replay as replayed

    if write:
        need_clone("--write")
        check_targets({}, {"--write": DATA / COMMITTED})
    typer.echo("\n\n".join(replay_text(replayed(log, rule)) for log in LOGS for rule in RULES))
    if halves:
        typer.echo("\n" + "\n\n".join(halves_text(log, fit_first_half(log)) for log in LOGS))
    if write:
        typer.echo(f"written to {write_table()}")
