"""`launch image`: realise images on this machine and list them."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager

from jobs import completion, console
from jobs.command_parser import CommandParser
from jobs.commands import options


def configure(parser: CommandParser) -> None:
    """Say what can be typed after it."""
    built = parser.add_command(
        "build",
        "Build an image's runtime: a virtual environment from the image's own lock file.",
        build,
    )
    name = built.add_argument("name", metavar="NAME", help="A folder of images/.")
    completion.offer(name, completion.images)
    listed = parser.add_command(
        "ls", "List the images, and which of them are built on this machine.", list_images
    )
    options.add_json(listed)


def build(*, name: str) -> None:
    """Build an image's runtime: a virtual environment from the image's own lock file."""
    from jobs import images

    root = images.build_runtime(name, images.PROJECT, report=_step)
    console.out(str(root / "bin" / "python"))


def list_images(*, json: bool) -> None:
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
