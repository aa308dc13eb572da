"""Writes one shard of samples, tar or TFRecord, and its record."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer.common.errors import TrainingError
from trainer.common.json_text import parse_json
from trainer.common.whole_file import write_whole
from trainer.data.pack.sources import Sample
from trainer.data.pictures.header import PictureHeader, parse_header
from trainer.data.shards import tar, tfrecord
from trainer.data.shards.index import Format, Shard, encode_places

# Gives the bytes of the sample of a number, and where its picture begins in them.
Encode = Callable[[int, Sample, PictureHeader, bytes], tuple[list[bytes], int]]

PICTURE_KEY = "image/encoded"
_BUFFER_BYTES = 1 << 20
_MAX_STEM_CHARS = 64
_NO_KEY_CHARS = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, kw_only=True)
class ShardTask:
    """A shard to write: `path` below `folder`; `first` is the number of its first sample."""

    folder: Path
    record: Path
    path: str
    format: Format
    first: int
    samples: Sequence[Sample]
    sizes: Sequence[int]


@dataclass(frozen=True, kw_only=True)
class WrittenShard:
    """A whole shard and its part of the places file, or the errors of its pictures."""

    task_path: str
    shard: Shard | None
    places: bytes = b""
    wrong: Sequence[TrainingError] = ()
    read_bytes: int = 0


def write_shard(task: ShardTask) -> WrittenShard:
    """Write the shard unless it is there and whole; all wrong pictures of it are looked for.

    Its record is written after it, so that a kill at any moment leaves a shard that is whole or
    one that is written again.
    """
    if (found := _find_written(task)) is not None:
        return found
    target = task.folder / task.path
    partial = target.with_name(f".{target.name}.partial")
    try:
        written = _write(task, partial)
        if written.shard is not None:
            partial.replace(target)
            _write_record(task.record, written)
        else:
            partial.unlink()
    except OSError as error:
        message = f"`{target}` cannot be written: {error.strerror}"
        raise TrainingError(message, hint="free some space and type the same again") from None
    return written


def _write(task: ShardTask, path: Path) -> WrittenShard:
    encode = ENCODERS[task.format]
    end = tar.END if task.format == "tar" else b""
    digest = hashlib.sha256()
    offsets, lengths, wrong = array("Q"), array("I"), list[TrainingError]()
    size = 0
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb", buffering=_BUFFER_BYTES) as file:

        def write(parts: Sequence[bytes]) -> int:
            # Hashed and written while the processor's cache still holds them.
            for part in parts:
                digest.update(part)
            file.writelines(parts)
            return sum(map(len, parts))

        for place, (sample, expected) in enumerate(zip(task.samples, task.sizes, strict=True)):
            try:
                data = read_picture(sample.path, expected)
                header = parse_header(data, sample.path)
            except TrainingError as error:
                wrong.append(error)
                continue
            if wrong:
                continue
            parts, offset = encode(task.first + place, sample, header, data)
            offsets.append(size + offset)
            lengths.append(len(data))
            size += write(parts)
        size += write([end])
    if wrong:
        return WrittenShard(task_path=task.path, shard=None, wrong=wrong)
    labels = array("I", (sample.label for sample in task.samples))
    return WrittenShard(
        task_path=task.path,
        shard=Shard(path=task.path, samples=len(labels), bytes=size, sha256=digest.hexdigest()),
        places=encode_places(offsets, lengths, labels),
        read_bytes=sum(lengths),
    )


def read_picture(path: str, expected: int) -> bytes:
    """Read a picture's file, which has to be as long as it was when the shards were planned."""
    try:
        # A third of Path.read_bytes; one byte more than expected shows a file that has grown.
        file = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        try:
            data = os.read(file, expected + 1)
            while len(data) < expected and (more := os.read(file, expected + 1 - len(data))):
                data += more
        finally:
            os.close(file)
    except OSError as error:
        message = f"`{path}` cannot be read: {error.strerror}"
        raise TrainingError(message, hint="get the file again") from None
    if len(data) != expected:
        message = f"`{path}` changed while it was being packed"
        raise TrainingError(message, hint="type the same again when no program writes there")
    return data


# --- what a sample is in each format -----------------------------------------------------------


def sample_key(number: int, path: str) -> str:
    """Give a name without a dot for a sample: its number in the split, and its file's name.

    WebDataset takes all before the first dot for the key, and names of two classes may be equal.
    """
    name = path.rpartition("/")[2]
    stem = _NO_KEY_CHARS.sub("_", name.rpartition(".")[0] or name)[:_MAX_STEM_CHARS]
    return f"{number:08}-{stem}"


def _encode_tar(
    number: int, sample: Sample, header: PictureHeader, data: bytes
) -> tuple[list[bytes], int]:
    beside = ("json", sample.record) if sample.record else ("cls", b"%d" % sample.label)
    members = ((header.suffix, data), beside)
    return tar.sample_parts(sample_key(number, sample.path), members)


def _encode_tfrecord(
    _number: int, sample: Sample, header: PictureHeader, data: bytes
) -> tuple[list[bytes], int]:
    features = {
        "image/height": tfrecord.int_feature(header.height),
        "image/width": tfrecord.int_feature(header.width),
        "image/channels": tfrecord.int_feature(header.channels),
        "image/format": tfrecord.bytes_feature(header.format.encode()),
        "image/filename": tfrecord.bytes_feature(os.fsencode(sample.path.rpartition("/")[2])),
    }
    if sample.record:
        features |= _coco_features(sample, header)
    else:
        features |= {
            "image/class/label": tfrecord.int_feature(sample.label),
            "image/class/text": tfrecord.bytes_feature(os.fsencode(sample.class_name)),
        }
    return tfrecord.record_parts(features, PICTURE_KEY, data)


def _coco_features(sample: Sample, header: PictureHeader) -> dict[str, bytes]:
    """Encode boxes as shares of the picture's sides, labels as category ids, and all as JSON."""
    record = json.loads(sample.record)
    objects = record["annotations"]
    names = {entry["id"]: str(entry["name"]) for entry in record["categories"]}
    boxes = [entry["bbox"] for entry in objects]
    lefts, tops = [box[0] for box in boxes], [box[1] for box in boxes]
    rights, bottoms = [box[0] + box[2] for box in boxes], [box[1] + box[3] for box in boxes]
    sides = {
        "xmin": (lefts, header.width),
        "xmax": (rights, header.width),
        "ymin": (tops, header.height),
        "ymax": (bottoms, header.height),
    }
    return {
        "image/source_id": tfrecord.bytes_feature(b"%d" % sample.label),
        **{
            f"image/object/bbox/{side}": tfrecord.float_feature([each / whole for each in pixels])
            for side, (pixels, whole) in sides.items()
        },
        "image/object/class/label": tfrecord.int_feature(*(o["category_id"] for o in objects)),
        "image/object/class/text": tfrecord.bytes_feature(
            *(names[entry["category_id"]].encode() for entry in objects)
        ),
        "image/object/is_crowd": tfrecord.int_feature(*(int(o.get("iscrowd", 0)) for o in objects)),
        "image/object/area": tfrecord.float_feature([o.get("area", 0.0) for o in objects]),
        "image/annotations/json": tfrecord.bytes_feature(sample.record),
    }


ENCODERS: dict[Format, Encode] = {"tar": _encode_tar, "tfrecord": _encode_tfrecord}


# --- shards that are there already -------------------------------------------------------------


def _write_record(path: Path, written: WrittenShard) -> None:
    assert written.shard is not None
    content = {
        "samples": written.shard.samples,
        "bytes": written.shard.bytes,
        "sha256": written.shard.sha256,
        "places": base64.b64encode(written.places).decode(),
        "read_bytes": written.read_bytes,
    }
    write_whole(path, json.dumps(content).encode())


def _find_written(task: ShardTask) -> WrittenShard | None:
    """Give the shard that an interrupted pack left, if its bytes are those it recorded."""
    try:
        found = parse_json(task.record.read_bytes())
        with (task.folder / task.path).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        shard = Shard(
            path=task.path, samples=found["samples"], bytes=found["bytes"], sha256=found["sha256"]
        )
        places = base64.b64decode(found["places"])
        read_bytes = found["read_bytes"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if digest != shard.sha256:
        return None
    return WrittenShard(task_path=task.path, shard=shard, places=places, read_bytes=read_bytes)
