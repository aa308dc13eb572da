"""`launch data synthesize`: make pictures of a dataset's layout and sizes."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from jobs.commands import options, quantities
from jobs.commands.data_programs import Events


def synthesize(
    *,
    dataset: Annotated[
        Literal["imagenet"],
        typer.Argument(metavar="NAME", help="Dataset to imitate: imagenet."),
    ],
    images: Annotated[
        int,
        typer.Option(
            metavar="N",
            parser=quantities.whole_number(1),
            help="Number of training pictures; 1/25 as many are added for validation.",
        ),
    ],
    to: options.To,
    classes: Annotated[
        int,
        typer.Option(metavar="N", parser=quantities.whole_number(1), help="Number of classes."),
    ] = 1000,
    seed: Annotated[
        int,
        typer.Option(
            metavar="N", parser=quantities.whole_number(0), help="Random seed (default: 0)."
        ),
    ] = 0,
    json: Events = False,
) -> None:
    """Make random JPEGs in the layout and sizes of a dataset, for tests."""
    from jobs.datasets.next_steps import next_steps, say_made
    from jobs.datasets.programs import run_program

    arguments = [dataset, f"--to={to}", f"--images={images}"]
    arguments += [f"--classes={classes}", f"--seed={seed}"]
    done = run_program("synthesize", arguments, failure="no pictures were made", as_json=json)
    if json:
        return
    say_made(done, next_steps(to, is_packable=True))
