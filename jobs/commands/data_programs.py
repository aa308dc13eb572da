"""`launch data prepare|pack|synthesize`: make a dataset's folder, from archives, folders, nothing."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from jobs.commands import options
from jobs.host import console

_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
}

Events = Annotated[bool, typer.Option("--json", help="Print events as JSON lines.")]


def num_bytes(given: str | int) -> int:
    """Parse a number of bytes: 128MiB, 100 MB, 4096."""
    text = str(given)  # typer parses defaults, too
    number = text.rstrip("BIKMGbikmg")
    found = _UNITS.get(text[len(number) :].lower())
    try:
        size = int(float(number) * found) if found else 0
    except (ValueError, OverflowError):
        size = 0
    if size < 1:
        message = f"`{text}` is no size: a number and a unit, as in 128MiB"
        raise typer.BadParameter(message)
    return size


def prepare(
    *,
    dataset: Annotated[
        Literal["digits", "mnist", "hymenoptera", "coco", "imagenet"],
        typer.Argument(metavar="NAME", help="One of digits, mnist, hymenoptera, coco, imagenet."),
    ],
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="DIR", parser=Path, help="The folder of the archives."),
    ] = None,
    to: options.To,
    download: Annotated[
        bool,
        typer.Option(
            "--download",
            help="Fetch archives that are missing in --from (coco, mnist, hymenoptera).",
        ),
    ] = False,
    checksums: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            parser=Path,
            help="Of archives you packed yourself, as md5sum or sha256sum writes them.",
        ),
    ] = None,
    json: Events = False,
) -> None:
    """Make a dataset's folder from its archives; digits need none."""
    from jobs.datasets.programs import run_program

    arguments = [dataset, f"--to={to}"]
    arguments += [f"--from={source}"] if source is not None else []
    arguments += [f"--checksums={checksums}"] if checksums is not None else []
    arguments += ["--download"] if download else []
    done = run_program("prepare", arguments, failure=f"`{dataset}` was not prepared", as_json=json)
    if json:
        return
    is_packable = dataset in {"hymenoptera", "coco", "imagenet"}
    _finish(done, [*([_packing(to)] if is_packable else []), _pushing(to, dataset)])


def pack(
    *,
    folder: Annotated[Path, typer.Argument(metavar="DIR", parser=Path, help="The folder to pack.")],
    to: options.To,
    shard_format: Annotated[
        Literal["tar", "tfrecord"],
        typer.Option("--format", help="As WebDataset (tar) or tf.data (tfrecord) reads them."),
    ] = "tar",
    shard_size: Annotated[
        int,
        typer.Option(
            metavar="SIZE", parser=num_bytes, show_default=False, help="About this each; 128MiB."
        ),
    ] = 128 << 20,
    json: Events = False,
) -> None:
    """Pack class folders or a COCO folder into a few large shards."""
    from jobs.datasets.programs import run_program

    arguments = [f"--to={to}", f"--format={shard_format}", f"--shard-size={shard_size}"]
    arguments += ["--", str(folder)]
    done = run_program("pack", arguments, failure=f"`{folder}` was not packed", as_json=json)
    if json:
        return
    _finish(done, [_pushing(to, _name(folder))])


def synthesize(
    *,
    dataset: Annotated[
        Literal["imagenet"],
        typer.Argument(metavar="NAME", help="The dataset to be like: imagenet."),
    ],
    images: Annotated[
        int,
        typer.Option(
            metavar="N",
            parser=options.whole_number(1),
            help="Pictures to train with; for validation 1 in 25 more.",
        ),
    ],
    to: options.To,
    classes: Annotated[
        int, typer.Option(metavar="N", parser=options.whole_number(1), help="Classes.")
    ] = 1000,
    seed: Annotated[
        int,
        typer.Option(metavar="N", parser=options.whole_number(0), help="Another for others."),
    ] = 0,
    json: Events = False,
) -> None:
    """Make JPEGs of a dataset's layout and sizes, to try things with."""
    from jobs.datasets.programs import run_program

    arguments = [dataset, f"--to={to}", f"--images={images}"]
    arguments += [f"--classes={classes}", f"--seed={seed}"]
    done = run_program("synthesize", arguments, failure="no pictures were made", as_json=json)
    if json:
        return
    _finish(done, [_packing(to), _pushing(to, _name(to))])


def _finish(done: dict[str, Any], branches: list[tuple[str, str]]) -> None:
    console.say(done["text"])
    console.out(done["folder"])
    console.say(console.tree("next", branches))


def _packing(folder: Path) -> tuple[str, str]:
    target = folder.with_name(f"{folder.absolute().name}-shards")
    words = ["launch", "data", "pack", str(folder), "--to", str(target)]
    return "pack it", shlex.join(words)


def _pushing(folder: Path, name: str) -> tuple[str, str]:
    return "send it", shlex.join(["launch", "data", "push", str(folder), name])


def _name(folder: Path) -> str:
    """A dataset's name after a folder's."""
    return folder.absolute().name.lower() or "dataset"
