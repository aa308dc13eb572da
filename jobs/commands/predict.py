"""`launch predict`: predict rates on more GPUs from rates that were measured on few."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.commands import options
from jobs.commands.usage import make_app
from jobs.host import console

if TYPE_CHECKING:
    from jobs.foresight.rows import Prediction

Measured = Annotated[
    Path,
    typer.Option(
        "--measured",
        metavar="FILE.csv",
        parser=Path,
        help="Measured rates: series,gpus,gpus_per_node,rate; docs/foresight.md has the rest.",
    ),
]
Ask = Annotated[
    Path,
    typer.Option(
        "--ask",
        metavar="FILE.csv",
        parser=Path,
        help="Sizes to predict: series,gpus,gpus_per_node.",
    ),
]


def predict(*, measured: Measured, ask: Ask, json: options.Json = False) -> None:
    """Predict training rates on more GPUs from measured ones.

    Each rate has a band that holds it in 9 of 10 cases. The row of one GPU gives a series its
    step; rows of several GPUs on the same fabric give the time of an exchange.
    """
    from jobs.foresight.predict import predict as predict_rows
    from jobs.foresight.table import read_asked, read_measured

    rows = read_measured(measured)
    found = predict_rows(rows, read_asked(ask, rows))
    if json:
        console.out_json(found)
        return
    header = ["SERIES", "GPUS", "RATE", "LOW", "HIGH", "BINDS"]
    console.out(console.table(header, [_cells(each) for each in found], right=(1, 2, 3, 4)))
    for why in dict.fromkeys(each.why_wide for each in found if each.why_wide):
        sizes = ", ".join(f"{each.series} {each.gpus}" for each in found if each.why_wide == why)
        console.say(f"wide band: {why} ({sizes})")


def _cells(row: Prediction) -> list[str]:
    figures = (f"{each:.4g}" for each in (row.rate, row.low, row.high))
    return [row.series, str(row.gpus), *figures, row.binds.value]


app = make_app({"predict": predict})
