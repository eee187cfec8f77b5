"""``python -m course predict``: one closed loop from data sheets, with its band; no rule here."""

from __future__ import annotations

from typing import Annotated

import typer


def predict(
    gpu: Annotated[str, typer.Option(help="The card, by the catalogue's name")],
    model: Annotated[str, typer.Option(help="The model, by the catalogue's name")],
    isl: Annotated[int, typer.Option(help="Tokens of a prompt")],
    osl: Annotated[int, typer.Option(help="Tokens of an answer")],
    users: Annotated[int, typer.Option(help="Users who send one request after the other")],
    n_gpus: Annotated[int, typer.Option(help="Cards that share the model")] = 1,
    precision: Annotated[
        str, typer.Option(help="bf16, fp16, fp8, fp8-static, nvfp4, mxfp4 or int4")
    ] = "bf16",
) -> None:
    """Say what users who never pause would measure, from data sheets, and how sure that is.

    The band is where nine of ten measured points of the nearest kind lay whose set-up the constants
    had not seen.
    """
    from course.serving.validation import predict_closed_loop, prediction_text

    point = predict_closed_loop(gpu, n_gpus, model, precision, isl, osl, users)
    typer.echo(prediction_text(point, gpu, n_gpus, model, precision))
