"""Packs a folder of labelled pictures into a few large shards with an index.

    python -m trainer.data.pack data/imagenet --to data/imagenet-shards
    launch data pack data/coco --to data/coco-shards --format tfrecord

tar shards are read by WebDataset, TFRecord shards by tf.data, both by this project's loaders
(docs/shards.md). Pictures go in as they are; a JPEG is looked at, never decoded. Samples lie in a
shuffled order that is always the same, so equal folders give equal bytes on any machine.

The shards grow in `.DIR.partial` beside DIR, which gets its name when all is there; after a kill
the same command goes on with the shards that are whole.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import random
import re
import shutil
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import get_args

from trainer.common.errors import TrainingError
from trainer.common.whole_file import write_whole
from trainer.data.disk.events import Events
from trainer.data.disk.partial_folder import PartialFolder, is_free
from trainer.data.disk.workers import num_cores, run_tasks
from trainer.data.pack.sources import FileFacts, Samples, Source, look_at_files, open_source
from trainer.data.pack.writer import ShardTask, WrittenShard, write_shard
from trainer.data.shards.index import (
    Format,
    Index,
    Split,
    room_for_shards,
    write_index,
    write_places,
)

# Large enough that a store's delay does not count, small enough that a few are read at a time.
SHARD_BYTES = 128 << 20
# What a sample's headers and padding take, on average; sizes need only be near each other.
_SAMPLE_OVERHEAD_BYTES = 1800
# A process takes as long to start as this takes to pack.
_BYTES_WORTH_A_PROCESS = 64 << 20
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30}
# Another number where equal folders come to be packed in another way.
_VERSION = 1
_INTERRUPTED = 130
# Of pictures that cannot be packed an error names so many.
_MOST_IN_A_LINE = 5
# Of files of pretrained weights; no picture has one.
_WEIGHTS = {".pth", ".safetensors"}


@dataclass(frozen=True, kw_only=True)
class SplitPlan:
    """The order in which a split's samples are packed, and the bounds of its shards."""

    name: str
    samples: Samples
    facts: FileFacts
    order: Sequence[int]
    bounds: Sequence[int]

    @property
    def num_shards(self) -> int:
        """The number of shards that the split becomes."""
        return len(self.bounds) - 1


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The shards to be written; `digest` changes with every file's name, size and time."""

    source: Source
    format: Format
    splits: Sequence[SplitPlan]
    digest: str

    @property
    def num_samples(self) -> int:
        """The number of pictures."""
        return sum(len(split.samples) for split in self.splits)

    @property
    def num_bytes(self) -> int:
        """The bytes of all pictures."""
        return sum(sum(split.facts.sizes) for split in self.splits)

    @property
    def num_shards(self) -> int:
        """The number of shards of all splits."""
        return sum(split.num_shards for split in self.splits)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; gives its exit code."""
    parser = argparse.ArgumentParser(prog="python -m trainer.data.pack", allow_abbrev=False)
    parser.add_argument("folder", type=Path, help="class folders, or a folder as COCO 2017's")
    parser.add_argument("--to", type=Path, required=True, metavar="DIR")
    parser.add_argument("--format", choices=get_args(Format), default="tar")
    parser.add_argument("--shard-size", default=str(SHARD_BYTES), metavar="SIZE", help="as 128MiB")
    parser.add_argument("--json", action="store_true", help="print events as JSON lines")
    given = parser.parse_args(argv)
    events = Events(as_json=given.json)
    try:
        shard_bytes = parse_size(given.shard_size)
        pack(given.folder, given.to, encoding=given.format, shard_bytes=shard_bytes, events=events)
    except TrainingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("error: interrupted (hint: type the same again to continue)", file=sys.stderr)
        return _INTERRUPTED
    return 0


def parse_size(text: str) -> int:
    """Give the number of bytes that `128MiB`, `100 MB` or `4096` means; TrainingError for others."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([A-Za-z]*)", text.strip())
    unit = _UNITS.get(match[2].lower()) if match else None
    num_bytes = int(float(match[1]) * unit) if match and unit else 0
    if num_bytes < 1:
        message = f"invalid size `{text}`"
        raise TrainingError(message, hint="a number and a unit, as 128MiB")
    return num_bytes


def pack(folder: Path, target: Path, *, encoding: Format, shard_bytes: int, events: Events) -> None:
    """Write the shards, the places and the index of the folder's pictures into `target`.

    Whole or not at all. Raises TrainingError where there is something in `target` already or it is
    inside of `folder`, where a picture cannot be packed (all such are looked for), or the disk is full.
    """
    target = target.absolute()
    if target.resolve().is_relative_to(folder.resolve()):
        message = f"`{target}` is inside `{folder}`, and would be taken for a part of it"
        raise TrainingError(message, hint="a folder beside it")
    if not is_free(target):
        PartialFolder(target).forget_finished()
        message = f"`{target}` is there already"
        raise TrainingError(message, hint="a new folder; or remove it first")
    source = open_source(folder)
    for text in source.left_out:
        events.tell("note", text)
    plan = plan_shards(source, encoding, shard_bytes)
    events.tell(
        "note",
        f"{plan.num_samples} pictures, {plan.num_bytes / 1e6:.1f} MB, "
        f"in {len(plan.source.classes)} classes: {plan.num_shards} shards",
    )
    with PartialFolder(target) as partial:
        _forget_other_plan(partial, plan, events)
        partial.require_room(plan.num_bytes + plan.num_samples * _SAMPLE_OVERHEAD_BYTES)
        written = _write_shards(partial, plan, events)
        index = _write_index(partial.data, plan, written)
        _copy_weights(folder, partial.data)
        partial.finish()
    _tell_done(events, target, index)


def plan_shards(source: Source, encoding: Format, shard_bytes: int) -> Plan:
    """Decide on the order of samples and the ends of shards; looks at each file's size.

    Raises TrainingError for a file that is not there, and for more shards than an index can list.
    """
    digest = hashlib.sha256(json.dumps([_VERSION, source.kind, encoding, shard_bytes]).encode())
    digest.update(json.dumps(source.classes).encode())
    splits: list[SplitPlan] = []
    for name, samples in source.splits.items():
        facts = look_at_files(samples)
        order = array("I", range(len(samples)))
        # Each class by itself would be what a window of shards holds, and what batches are made of.
        random.Random(f"shards/{name}").shuffle(order)
        sizes = [facts.sizes[index] + _SAMPLE_OVERHEAD_BYTES for index in order]
        splits.append(
            SplitPlan(
                name=name,
                samples=samples,
                facts=facts,
                order=order,
                bounds=shard_bounds(sizes, shard_bytes),
            )
        )
        digest.update(name.encode() + facts.digest)
    plan = Plan(source=source, format=encoding, splits=splits, digest=digest.hexdigest())
    _require_room_in_index(plan)
    return plan


def _require_room_in_index(plan: Plan) -> None:
    paths = {
        split.name: _shard_path(split.name, split.num_shards, plan.format) for split in plan.splits
    }
    room = room_for_shards(plan.source.kind, plan.format, plan.source.classes, paths)
    # Each split's number of shards is rounded.
    whole = room - len(paths)
    if whole <= 0:
        message = f"the names of {len(plan.source.classes)} classes do not fit into an index"
        raise TrainingError(message, hint="shorter names")
    if plan.num_shards > room:
        message = f"{plan.num_shards} shards are more than the {room} that an index can list"
        num_bytes = plan.num_bytes + plan.num_samples * _SAMPLE_OVERHEAD_BYTES
        hint = f"--shard-size {num_bytes // whole // 1024 + 1}KiB, or larger"
        raise TrainingError(message, hint=hint)


def shard_bounds(sizes: Sequence[int], shard_bytes: int) -> list[int]:
    """Give where shards begin, and the end: as many as come nearest the wanted size, all alike.

    No shard is empty.
    """
    total = sum(sizes)
    num_shards = min(len(sizes), max(1, round(total / shard_bytes)))
    ends = accumulate(sizes)
    # A sample belongs to the shard in whose share of all bytes its middle lies.
    shards = [
        (2 * end - size) * num_shards // (2 * total) for size, end in zip(sizes, ends, strict=True)
    ]
    changes = [at for at, (one, next_) in enumerate(pairwise(shards), 1) if one != next_]
    return [0, *changes, len(sizes)]


def _forget_other_plan(partial: PartialFolder, plan: Plan, events: Events) -> None:
    """Drop what was packed of other files, or in another way."""
    path = partial.state / "plan"
    begun = path.read_text(encoding="utf-8") if path.is_file() else ""
    if begun == plan.digest:
        return
    if begun:
        events.tell("note", "the unfinished shards here are of other files: packing starts again")
    partial.empty()
    write_whole(path, plan.digest.encode())


def _write_shards(partial: PartialFolder, plan: Plan, events: Events) -> Mapping[str, WrittenShard]:
    num_workers = min(num_cores(), plan.num_shards, 1 + plan.num_bytes // _BYTES_WORTH_A_PROCESS)
    written: dict[str, WrittenShard] = {}
    files_done = bytes_done = 0
    wrong: list[TrainingError] = []
    tasks = _tasks(partial, plan)
    with contextlib.closing(run_tasks(write_shard, tasks, num_workers=num_workers)) as results:
        for result in results:
            written[result.task_path] = result
            wrong += result.wrong
            files_done += result.shard.samples if result.shard else 0
            bytes_done += result.read_bytes
            events.progress(
                "packing",
                files_done=files_done,
                bytes_done=bytes_done,
                files=plan.num_samples,
                bytes_total=plan.num_bytes,
            )
    if wrong:
        raise _all_of(wrong)
    return written


def _all_of(wrong: Sequence[TrainingError]) -> TrainingError:
    """Join the errors of all pictures that cannot be packed, so that all are mended at once.

    More than a line can hold are told on stderr, each on a line of its own.
    """
    if len(wrong) == 1:
        return wrong[0]
    reasons = sorted(error.message for error in wrong)
    shown, more = "; ".join(reasons[:_MOST_IN_A_LINE]), ""
    if len(reasons) > _MOST_IN_A_LINE:
        more = f"; and {len(reasons) - _MOST_IN_A_LINE} more"
        print(*reasons, sep="\n", file=sys.stderr)
    message = f"{len(reasons)} pictures: {shown}{more}"
    return TrainingError(message, hint="get them again, or take them out")


def _tasks(partial: PartialFolder, plan: Plan) -> Iterator[ShardTask]:
    for split in plan.splits:
        for number, (first, end) in enumerate(pairwise(split.bounds)):
            path = _shard_path(split.name, number, plan.format)
            indices = split.order[first:end]
            yield ShardTask(
                folder=partial.data,
                record=partial.state / f"{Path(path).name}.json",
                path=path,
                format=plan.format,
                first=first,
                samples=[split.samples[index] for index in indices],
                sizes=[split.facts.sizes[index] for index in indices],
            )


def _shard_path(split: str, number: int, encoding: Format) -> str:
    return f"{split}/{split}-{number:06}.{encoding}"


def _write_index(folder: Path, plan: Plan, written: Mapping[str, WrittenShard]) -> Index:
    splits: dict[str, Split] = {}
    for split in plan.splits:
        paths = [_shard_path(split.name, n, plan.format) for n in range(split.num_shards)]
        results = [written[path] for path in paths]
        shards = tuple(result.shard for result in results if result.shard is not None)
        splits[split.name] = Split(
            samples=sum(shard.samples for shard in shards),
            bytes=sum(shard.bytes for shard in shards),
            places=write_places(folder, split.name, b"".join(each.places for each in results)),
            shards=shards,
        )
    index = Index(
        kind=plan.source.kind, format=plan.format, classes=plan.source.classes, splits=splits
    )
    write_index(folder, index)
    return index


def _copy_weights(folder: Path, target: Path) -> None:
    """Take pretrained weights along, which lie beside the pictures."""
    for path in sorted(folder.iterdir()):
        if path.suffix not in _WEIGHTS or not path.is_file():
            continue
        try:
            shutil.copyfile(path, target / path.name)
        except OSError as error:
            message = f"the weights `{path}` cannot be copied to the shards: {error.strerror}"
            hint = "free some space, or take the file out of the folder"
            raise TrainingError(message, hint=hint) from None


def _tell_done(events: Events, target: Path, index: Index) -> None:
    counts = {name: split.samples for name, split in index.splits.items()}
    shards = sum(len(split.shards) for split in index.splits.values())
    size = sum(split.bytes for split in index.splits.values())
    text = (
        f"{sum(counts.values())} pictures in {shards} shards of {index.format}, "
        f"{size / 1e6:.1f} MB, in {target}"
    )
    events.tell("done", text, folder=str(target), samples=counts, shards=shards, bytes=size)
