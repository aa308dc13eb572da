"""`launch image`: realise images on this machine and list them."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated

import typer

from jobs import console
from jobs.commands import options


def register(app: typer.Typer) -> None:
    """Add the verb to the application."""
    group = typer.Typer(help="Realise images on this machine; list them.", no_args_is_help=True)
    group.command("build")(build)
    group.command("ls")(list_images)
    app.add_typer(group, name="image")


def build(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A folder of images/.")],
) -> None:
    """Build an image's runtime: a virtual environment from the image's own lock file."""
    from jobs import images

    root = images.build_runtime(name, images.PROJECT, report=_step)
    console.out(str(root / "bin" / "python"))


def list_images(json: options.Json = False) -> None:
    """List the images, and which of them are built on this machine."""
    from jobs import images

    rows = [images.describe(name, images.PROJECT) for name in images.list_images(images.PROJECT)]
    if json:
        console.out_json(rows)
        return
    cells = [[row["name"], "yes" if row["built"] else "no", row["runtime"]] for row in rows]
    console.out(console.table(["IMAGE", "BUILT", "RUNTIME"], cells))


@contextmanager
def _step(title: str) -> Generator[None]:
    started = time.monotonic()
    console.say(f"{title} ...")
    yield
    console.say(f"{console.duration_text(time.monotonic() - started):>12}  {title}")
