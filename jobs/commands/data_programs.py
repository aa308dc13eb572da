"""`launch data prepare|pack`: make a dataset's folder from archives, or shards from a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from jobs.commands import options, quantities

Events = Annotated[bool, typer.Option("--json", help="Print events as JSON lines.")]


def prepare(
    *,
    dataset: Annotated[
        Literal["digits", "mnist", "keras-mnist", "hymenoptera", "coco", "imagenet"],
        typer.Argument(
            metavar="NAME",
            help="One of digits, mnist, keras-mnist, hymenoptera, coco, imagenet.",
        ),
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
            help="Fetch archives that are missing in --from (all but digits, imagenet).",
        ),
    ] = False,
    checksums: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            parser=Path,
            help="Checksums of archives you packed yourself, as md5sum or sha256sum writes them.",
        ),
    ] = None,
    json: Events = False,
) -> None:
    """Make a dataset's folder from its archives; digits need none."""
    from jobs.datasets.next_steps import next_steps, say_made
    from jobs.datasets.programs import run_program

    arguments = [dataset, f"--to={to}"]
    arguments += [f"--from={source}"] if source is not None else []
    arguments += [f"--checksums={checksums}"] if checksums is not None else []
    arguments += ["--download"] if download else []
    done = run_program("prepare", arguments, failure=f"`{dataset}` was not prepared", as_json=json)
    if json:
        return
    is_packable = dataset in {"hymenoptera", "coco", "imagenet"}
    say_made(done, next_steps(to, dataset, is_packable=is_packable))


def pack(
    *,
    folder: Annotated[Path, typer.Argument(metavar="DIR", parser=Path, help="The folder to pack.")],
    to: options.To,
    shard_format: Annotated[
        Literal["tar", "tfrecord"],
        typer.Option(
            "--format", help="The format of shards: WebDataset (tar) or tf.data (tfrecord)."
        ),
    ] = "tar",
    shard_size: Annotated[
        int,
        typer.Option(
            metavar="SIZE",
            parser=quantities.num_bytes,
            show_default=False,
            help="The approximate size of a shard; 128MiB.",
        ),
    ] = 128 << 20,
    json: Events = False,
) -> None:
    """Pack class folders or a COCO folder into a few large shards."""
    from jobs.datasets.next_steps import name_of, next_steps, say_made
    from jobs.datasets.programs import run_program

    arguments = [f"--to={to}", f"--format={shard_format}", f"--shard-size={shard_size}"]
    arguments += ["--", str(folder)]
    done = run_program("pack", arguments, failure=f"`{folder}` was not packed", as_json=json)
    if json:
        return
    say_made(done, next_steps(to, name_of(folder)))
