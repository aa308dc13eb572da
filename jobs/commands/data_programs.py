"""`launch data prepare|pack|synthesize`: make a dataset's folder, or shards from one."""

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
            help="Dataset: digits, mnist, keras-mnist, hymenoptera, coco or imagenet.",
        ),
    ],
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="DIR", parser=Path, help="Folder that holds the archives."),
    ] = None,
    to: options.To,
    download: Annotated[
        bool,
        typer.Option(
            "--download",
            help="Download missing archives (all but digits, imagenet) and weights into --from.",
        ),
    ] = False,
    checksums: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            parser=Path,
            help="Checksums of your own archives, in the format of md5sum or sha256sum.",
        ),
    ] = None,
    no_weights: Annotated[
        bool,
        typer.Option(
            "--no-weights",
            help="Leave out the pretrained weights (coco, hymenoptera).",
        ),
    ] = False,
    json: Events = False,
) -> None:
    """Make a dataset's folder from its archives (`digits` needs no archives)."""
    from jobs.datasets.programs import next_steps, run_program, say_made

    arguments = [dataset, f"--to={to}"]
    arguments += [f"--from={source}"] if source is not None else []
    arguments += [f"--checksums={checksums}"] if checksums is not None else []
    arguments += ["--download"] if download else []
    arguments += ["--no-weights"] if no_weights else []
    done = run_program("prepare", arguments, failure=f"`{dataset}` was not prepared", as_json=json)
    if json:
        return
    is_packable = dataset in {"hymenoptera", "coco", "imagenet"}
    # As the catalog's job names it.
    name = "coco2017" if dataset == "coco" else dataset
    say_made(done, next_steps(to, name, is_packable=is_packable))


def pack(
    *,
    folder: Annotated[Path, typer.Argument(metavar="DIR", parser=Path, help="Folder to pack.")],
    to: options.To,
    shard_format: Annotated[
        Literal["tar", "tfrecord"],
        typer.Option(
            "--format", help="Format of the shards: WebDataset (tar) or tf.data (tfrecord)."
        ),
    ] = "tar",
    shard_size: Annotated[
        int,
        typer.Option(
            metavar="SIZE",
            parser=quantities.num_bytes,
            show_default=False,
            help="Approximate size of a shard (default: 128MiB).",
        ),
    ] = 128 << 20,
    json: Events = False,
) -> None:
    """Pack class folders or a COCO folder into a few large shards."""
    from jobs.datasets.programs import name_of, next_steps, run_program, say_made

    arguments = [f"--to={to}", f"--format={shard_format}", f"--shard-size={shard_size}"]
    arguments += ["--", str(folder)]
    done = run_program("pack", arguments, failure=f"`{folder}` was not packed", as_json=json)
    if json:
        return
    say_made(done, next_steps(to, name_of(folder)))


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
    from jobs.datasets.programs import next_steps, run_program, say_made

    arguments = [dataset, f"--to={to}", f"--images={images}"]
    arguments += [f"--classes={classes}", f"--seed={seed}"]
    done = run_program("synthesize", arguments, failure="no pictures were made", as_json=json)
    if json:
        return
    say_made(done, next_steps(to, is_packable=True))
