"""Makes a data set's folder in the form its trainers read, from the archives it is published as.

    python -m trainer.data.prepare imagenet --from archives --to data/imagenet
    python -m trainer.data.prepare coco|mnist|keras-mnist|hymenoptera --from archives --to DIR --download
    python -m trainer.data.prepare digits --to data/digits

Interrupted at any time, the same command goes on. The folder gets its name when all of it is there
and checked. docs/prepare.md says what to get, from where, and how long it takes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainer.common.errors import TrainingError
from trainer.data.archives.file import ArchiveFile
from trainer.data.archives.tar import Member
from trainer.data.disk.events import Events
from trainer.data.disk.partial_folder import PartialFolder
from trainer.data.pictures.idx import MNIST_FILES, read_idx
from trainer.data.prepare import imagenet, published, zipped_sets
from trainer.data.prepare.digits import prepare_digits
from trainer.data.prepare.fetch import fetch_archives
from trainer.data.prepare.published import Archive, Checksum, expected_checksums, read_checksums
from trainer.data.prepare.staging import Staging, Unpacked, is_prepared
from trainer.data.prepare.unpack import Progress, unpack
from trainer.data.prepare.weights import (
    place_weights,
    require_checksum,
    require_weights,
    weights_name,
)

_IMAGENET_PAGE = "https://www.image-net.org/download-images"


@dataclass(frozen=True, kw_only=True)
class _Sources:
    """The archives of a data set, the folder they are in, and what their checksums must be."""

    archives: Sequence[Archive]
    folder: Path
    expected: Mapping[str, Checksum]


@dataclass(frozen=True, kw_only=True)
class _Part:
    """One archive to unpack, and the folders and files that come out of it."""

    name: str
    files: Callable[[ArchiveFile], Iterator[Member]]
    unpacked_bytes: int
    roots: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _DataSet:
    """`plan` looks into the archives and says what to unpack; `check` sees what came out."""

    archives: tuple[Archive, ...]
    plan: Callable[[_Sources, Staging], list[_Part]]
    check: Callable[[Path], None]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; gives its exit code."""
    arguments = _parser().parse_args(argv)
    events = Events(as_json=arguments.json)
    try:
        if arguments.dataset == "digits":
            _require_no_archives(arguments)
            prepare_digits(arguments.to, events)
        else:
            prepare_archives(
                arguments.dataset,
                _source(arguments.source, arguments.dataset),
                arguments.to,
                events,
                checksums=arguments.checksums,
                download=arguments.download,
                weights=None if arguments.no_weights else published.WEIGHTS.get(arguments.dataset),
            )
    except (TrainingError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("error: interrupted (hint: type the same again to continue)", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m trainer.data.prepare", allow_abbrev=False)
    parser.add_argument("dataset", choices=[*_DATASETS, "digits"])
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="DIR",
        help="folder that holds the archives (digits: none)",
    )
    parser.add_argument("--to", type=Path, required=True, metavar="DIR")
    parser.add_argument("--download", action="store_true", help="download missing archives")
    parser.add_argument(
        "--checksums",
        type=Path,
        metavar="FILE",
        help="checksums of your own archives, in the format of md5sum or sha256sum",
    )
    parser.add_argument(
        "--no-weights",
        action="store_true",
        help="leave out the pretrained weights that the data set's job begins with",
    )
    parser.add_argument("--json", action="store_true", help="print events as JSON lines")
    return parser


def _require_no_archives(arguments: argparse.Namespace) -> None:
    options = {
        "--from": "source",
        "--download": "download",
        "--checksums": "checksums",
        "--no-weights": "no_weights",
    }
    for option, name in options.items():
        if getattr(arguments, name):
            message = f"digits come with scikit-learn, not from archives: {option} is of no use"
            raise TrainingError(message, hint="leave it out")


def _source(source: Path | None, dataset: str) -> Path:
    if source is None:
        message = f"{dataset} is made from archives, and no --from says where they are"
        raise TrainingError(message, hint="name their folder: --from DIR")
    return source


def prepare_archives(
    dataset: str,
    source: Path,
    target: Path,
    events: Events,
    *,
    checksums: Path | None = None,
    download: bool = False,
    archives: Sequence[Archive] | None = None,
    weights: Archive | None = None,
) -> None:
    """Make the folder `target` from the archives in `source`; a whole one that is there stays.

    `archives` stand in for the published ones of the same names, from other places; `weights` is
    the file of pretrained weights that comes to lie beside the pictures. Raises TrainingError where an archive is missing, wrong, cut off or unsafe.
    """
    wanted = _DATASETS[dataset]
    archives = archives or wanted.archives
    if download and dataset == "imagenet":
        names = ", ".join(archive.name for archive in archives)
        message = f"ImageNet asks its users to register: get {names} from {_IMAGENET_PAGE}"
        raise TrainingError(message, hint=f"put them into {source}, leave --download out")
    listed = read_checksums(checksums) if checksums else None
    if weights is not None and listed is not None:
        weights = replace(weights, checksum=listed.get(weights.name, weights.checksum))
    usual = published.WEIGHTS.get(dataset)
    if there := is_prepared(target, dataset, beside=weights_name(usual) if usual else ""):
        PartialFolder(target).forget_finished()
        added = weights is not None and _add_weights(weights, source, target, events, download)
        _tell_done(target, there, events, changed=added)
        return
    sources = _Sources(
        archives=archives, folder=source, expected=expected_checksums(archives, listed)
    )
    if download:
        fetch_archives([*archives, *([weights] if weights else [])], source, events)
    _require_archives(archives, source, dataset)
    if weights is not None:
        require_weights(weights, source)
    with Staging(target, dataset) as staging:
        parts = wanted.plan(sources, staging)
        _unpack_all(parts, sources, staging, events)
        wanted.check(staging.folder)
        roots = [root for part in parts for root in part.roots]
        if weights is not None:
            place_weights(weights, source, staging.folder)
            roots.append(weights_name(weights))
        made = staging.finish(tuple(roots))
    _tell_done(target, made, events, changed=True)


def _add_weights(
    weights: Archive, source: Path, target: Path, events: Events, download: bool
) -> bool:
    """Put the weights into a folder that was prepared before; tell whether they were missing."""
    made = target / weights_name(weights)
    if made.is_file():
        require_checksum(made, weights, shown=made)
        return False
    if download:
        fetch_archives([weights], source, events)
    require_weights(weights, source)
    place_weights(weights, source, target)
    return True


def _require_archives(archives: Sequence[Archive], source: Path, dataset: str) -> None:
    missing = [archive.name for archive in archives if not (source / archive.name).is_file()]
    if missing:
        names = ", ".join(f"`{name}`" for name in missing)
        what = "it" if len(missing) == 1 else "them"
        by_hand = f"get {what} from {_IMAGENET_PAGE}"
        hint = by_hand if dataset == "imagenet" else f"--download gets {what}"
        message = f"`{source}` holds no {names}"
        raise TrainingError(message, hint=hint)


def _unpack_all(
    parts: Sequence[_Part], sources: _Sources, staging: Staging, events: Events
) -> None:
    staging.require_room(sum(part.unpacked_bytes for part in parts))
    paths = [sources.folder / part.name for part in parts]
    progress = Progress(events=events, archives_bytes=sum(path.stat().st_size for path in paths))
    for part, path in zip(parts, paths, strict=True):
        unpack(
            staging,
            path,
            files=part.files,
            roots=part.roots,
            expected=sources.expected[part.name],
            progress=progress,
        )


def _tell_done(target: Path, made: tuple[int, int], events: Events, *, changed: bool) -> None:
    num_files, num_bytes = made
    there = "" if changed else " (there already)"
    events.tell(
        "done",
        f"{num_files:,} files, {num_bytes / 1e6:,.1f} MB in {target}{there}",
        folder=str(target.absolute()),
        files=num_files,
        bytes=num_bytes,
        changed=changed,
    )


def _plan_imagenet(sources: _Sources, staging: Staging) -> list[_Part]:
    devkit = sources.folder / imagenet.DEVKIT
    checksum = sources.expected[imagenet.DEVKIT]
    classes = imagenet.read_val_classes(devkit, checksum)
    text = f"{checksum.algorithm}:{checksum.digest}"
    staging.note(replace(Unpacked.beginning(devkit), is_done=True, checksum=text))
    # The small one first: what is wrong with the labels shows before an hour of training pictures.
    return [
        _Part(
            name=name,
            files=files,
            unpacked_bytes=(sources.folder / name).stat().st_size,
            roots=(root,),
        )
        for name, files, root in (
            (imagenet.VAL, imagenet.val_files(classes), "val"),
            (imagenet.TRAIN, imagenet.train_files, "train"),
        )
    ]


def _plan(
    look: Callable[[Path], zipped_sets.Contents], *roots: tuple[str, ...]
) -> Callable[[_Sources, Staging], list[_Part]]:
    """Plan a part for each archive, which unpacks to its roots."""

    def plan(sources: _Sources, _: Staging) -> list[_Part]:
        parts: list[_Part] = []
        for archive, own in zip(sources.archives, roots, strict=True):
            found = look(sources.folder / archive.name)
            size = found.unpacked_bytes
            parts.append(
                _Part(name=archive.name, files=found.files, unpacked_bytes=size, roots=own)
            )
        return parts

    return plan


def _check_nothing_more(_: Path) -> None:
    """Accept the folder: its archives' checksums were checked."""


def _check_mnist(folder: Path) -> None:
    for name in MNIST_FILES:
        read_idx(folder, name)


_DATASETS: dict[str, _DataSet] = {
    "imagenet": _DataSet(
        archives=published.IMAGENET, plan=_plan_imagenet, check=imagenet.require_same_classes
    ),
    "coco": _DataSet(
        archives=published.COCO,
        plan=_plan(zipped_sets.coco_files, ("annotations",), ("val2017",), ("train2017",)),
        check=_check_nothing_more,
    ),
    "mnist": _DataSet(
        archives=published.MNIST,
        plan=_plan(zipped_sets.mnist_files, *((name,) for name in MNIST_FILES)),
        check=_check_mnist,
    ),
    "keras-mnist": _DataSet(
        archives=published.KERAS_MNIST,
        plan=_plan(zipped_sets.keras_files, ("datasets",)),
        check=_check_nothing_more,
    ),
    "hymenoptera": _DataSet(
        archives=published.HYMENOPTERA,
        plan=_plan(zipped_sets.hymenoptera_files, ("train", "val")),
        check=_check_nothing_more,
    ),
}
