"""`launch data prepare|pack|synthesize`: make a dataset's folder, from archives, folders, nothing."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from jobs.commands import completers as completion
from jobs.commands import options
from jobs.commands.parser import CommandParser, whole_number
from jobs.host import console

DATASETS = ("digits", "mnist", "hymenoptera", "coco", "imagenet")


def configure(parser: CommandParser) -> None:
    """Say what can be typed after `launch data`."""
    made = parser.add_command(
        "prepare", "Make a dataset's folder from its archives; digits need none.", prepare
    )
    made.add_argument(
        "dataset", metavar="NAME", choices=DATASETS, help=f"One of {', '.join(DATASETS)}."
    )
    archives = made.add_argument(
        "--from", dest="source", metavar="DIR", type=Path, help="The folder of the archives."
    )
    completion.offer(archives, completion.files)
    options.add_to(made)
    made.add_argument(
        "--download",
        action="store_true",
        help="Fetch archives that are missing in --from (coco, mnist, hymenoptera).",
    )
    checksums = made.add_argument(
        "--checksums",
        metavar="FILE",
        type=Path,
        help="Of archives you packed yourself, as md5sum or sha256sum writes them.",
    )
    completion.offer(checksums, completion.files)
    _add_events(made)

    packed = parser.add_command(
        "pack", "Pack class folders or a COCO folder into a few large shards.", pack
    )
    folder = packed.add_argument("folder", metavar="DIR", type=Path, help="The folder to pack.")
    completion.offer(folder, completion.files)
    options.add_to(packed)
    packed.add_argument(
        "--format",
        dest="shard_format",
        choices=("tar", "tfrecord"),
        default="tar",
        help="As WebDataset (tar, the default) or tf.data reads them.",
    )
    packed.add_argument(
        "--shard-size",
        metavar="SIZE",
        type=num_bytes,
        default=128 << 20,
        help="About this each; 128MiB.",
    )
    _add_events(packed)

    synthesized = parser.add_command(
        "synthesize", "Make JPEGs of a dataset's layout and sizes, to try things with.", synthesize
    )
    synthesized.add_argument(
        "dataset", metavar="NAME", choices=("imagenet",), help="What to be like: imagenet."
    )
    synthesized.add_argument(
        "--images",
        metavar="N",
        type=whole_number(1),
        required=True,
        help="Pictures to train with; for validation 1 in 25 more.",
    )
    options.add_to(synthesized)
    synthesized.add_argument(
        "--classes", metavar="N", type=whole_number(1), default=1000, help="Classes; 1000."
    )
    synthesized.add_argument(
        "--seed", metavar="N", type=whole_number(0), default=0, help="Another for others; 0."
    )
    _add_events(synthesized)


def num_bytes(text: str) -> int:
    """The type of `--shard-size`: 128MiB, 100 MB, 4096."""
    from jobs.host.units import SIZE_UNITS, parse_bytes

    size = parse_bytes(text, SIZE_UNITS)
    if size is None:
        from argparse import ArgumentTypeError

        message = f"`{text}` is no size: a number and a unit, as in 128MiB"
        raise ArgumentTypeError(message)
    return size


def _add_events(parser: CommandParser) -> None:
    parser.add_argument("--json", action="store_true", help="Print events as JSON lines.")


def prepare(
    *,
    dataset: str,
    source: Path | None,
    to: Path,
    download: bool,
    checksums: Path | None,
    json: bool,
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


def pack(*, folder: Path, to: Path, shard_format: str, shard_size: int, json: bool) -> None:
    """Pack class folders or a COCO folder into a few large shards."""
    from jobs.datasets.programs import run_program

    arguments = [f"--to={to}", f"--format={shard_format}", f"--shard-size={shard_size}"]
    arguments += ["--", str(folder)]
    done = run_program("pack", arguments, failure=f"`{folder}` was not packed", as_json=json)
    if json:
        return
    _finish(done, [_pushing(to, _name(folder))])


def synthesize(*, dataset: str, images: int, to: Path, classes: int, seed: int, json: bool) -> None:
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
