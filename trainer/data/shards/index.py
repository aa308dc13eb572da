"""Reads and writes the index of a packed dataset: shards with their sha256, places of samples.

DIR/index.json            kind, format, class names; of each split its shards and its places file
DIR/train/places.bin      16 bytes a sample, little-endian, in the order of shards and in them:
                          u64 offset of the picture's first byte in its shard, u32 its length,
                          u32 its label (of kind coco: its image id)
DIR/train/train-000000.tar, or .tfrecord: a picture is read as `pread(shard, length, offset)`
"""

from __future__ import annotations

import hashlib
import json
import sys
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import add
from pathlib import Path, PurePosixPath
from typing import Any, Literal, cast, get_args

from trainer.common.errors import TrainingError
from trainer.common.json_text import parse_json
from trainer.common.whole_file import write_whole

SCHEMA = 1
INDEX_FILE = "index.json"
PLACES_FILE = "places.bin"
PLACE_BYTES = 16
# Of 40,000 shards; as what Python makes of it, at worst twenty times that.
MOST_INDEX_BYTES = 8 << 20

Kind = Literal["pictures", "coco"]
Format = Literal["tar", "tfrecord"]


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One file of samples; `path` is below the dataset's folder, with slashes."""

    path: str
    samples: int
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class PlacesFile:
    """The file that says where each sample of a split lies."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Split:
    """One split; `samples` and `bytes` are the sums over its shards."""

    samples: int
    bytes: int
    places: PlacesFile
    shards: tuple[Shard, ...]


@dataclass(frozen=True, kw_only=True)
class Index:
    """A packed dataset; a label is a place in `classes` (of kind coco: names in the order of ids)."""

    kind: Kind
    format: Format
    classes: tuple[str, ...]
    splits: Mapping[str, Split]


@dataclass(frozen=True, kw_only=True)
class Places:
    """Shard, offset and length of each sample, in columns; `shards` index Split.shards."""

    shards: Sequence[int]
    offsets: Sequence[int]
    lengths: Sequence[int]
    labels: Sequence[int]

    def __len__(self) -> int:
        return len(self.labels)


def read_index(folder: Path) -> Index | None:
    """Read the folder's index; None where it has none.

    Raises TrainingError where it cannot be read, is of a schema that is not known here, or names
    a file outside of the folder.
    """
    path = folder / INDEX_FILE
    try:
        with path.open("rb") as file:
            content = file.read(MOST_INDEX_BYTES + 1)
        if len(content) > MOST_INDEX_BYTES:
            raise _wrong(path, f"it has more than {MOST_INDEX_BYTES:,} bytes: pack larger shards")
        found: Any = parse_json(content)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _wrong(path, str(error)) from None
    schema = found.get("schema") if isinstance(found, dict) else None
    if schema != SCHEMA or isinstance(schema, bool):
        shown = json.dumps(schema) if isinstance(schema, str | int | None) else "of another type"
        message = f"`{path}` is of schema {shown:.40}, and {SCHEMA} is known here"
        raise TrainingError(message, hint="pack the pictures again, or take a newer Trainyard")
    try:
        return _parse_index(found)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _wrong(path, f"it is not an index of shards ({error!r:.200})") from None
    except RecursionError:  # while it said what was wrong
        raise _wrong(path, "it is not an index of shards, and nested deeply") from None


def read_places(folder: Path, split: str) -> Places:
    """Read where each sample of a split lies; a million take some tenths of a second.

    Raises TrainingError where there is no such split, or where the file does not fit the index.
    """
    index = read_index(folder)
    if index is None or split not in index.splits:
        there = "no index" if index is None else f"only {', '.join(index.splits) or 'no split'}"
        message = f"`{folder}` has no packed split `{split}`: {there}"
        raise TrainingError(message, hint="launch data pack FOLDER --to DIR")
    about = index.splits[split]
    path = folder / about.places.path
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _wrong(path, str(error.strerror)) from None
    if len(data) != PLACE_BYTES * about.samples or _sha256(data) != about.places.sha256:
        raise _wrong(path, f"it is not the file that `{INDEX_FILE}` describes")
    places = _columns(data, about.shards)
    _require_bounds(path, places, index, about.shards)
    return places


def encode_places(offsets: Sequence[int], lengths: Sequence[int], labels: Sequence[int]) -> bytes:
    """Give the bytes of a places file; those of several shards follow one another."""
    halves = array("I", bytes(PLACE_BYTES * len(offsets)))
    halves[0::4] = array("I", (offset & 0xFFFFFFFF for offset in offsets))
    halves[1::4] = array("I", (offset >> 32 for offset in offsets))
    halves[2::4] = array("I", lengths)
    halves[3::4] = array("I", labels)
    return _little_endian(halves).tobytes()


def write_places(folder: Path, split: str, data: bytes) -> PlacesFile:
    """Write a split's places file, whole or not at all; gives what the index says of it."""
    path = f"{split}/{PLACES_FILE}"
    write_whole(folder / path, data)
    return PlacesFile(path=path, bytes=len(data), sha256=_sha256(data))


def write_index(folder: Path, index: Index) -> None:
    """Write the index, whole or not at all; it goes last, when all that it names is there."""
    write_whole(folder / INDEX_FILE, _encode_index(index))


def room_for_shards(
    kind: Kind, encoding: Format, classes: tuple[str, ...], longest_paths: Mapping[str, str]
) -> int:
    """Count the shards that an index can list without being too large to be read, whatever their sizes.

    `longest_paths` has a path of each split, no shorter than those of its shards.
    """
    sha256, largest = "0" * 64, 2**63 - 1

    def num_bytes(splits: Mapping[str, tuple[Shard, ...]]) -> int:
        places = {name: f"{name}/{PLACES_FILE}" for name in splits}
        listed = {
            name: Split(
                samples=largest,
                bytes=largest,
                places=PlacesFile(path=places[name], bytes=largest, sha256=sha256),
                shards=shards,
            )
            for name, shards in splits.items()
        }
        return len(_encode_index(Index(kind=kind, format=encoding, classes=classes, splits=listed)))

    path = max(longest_paths.values(), key=len)
    shard = Shard(path=path, samples=largest, bytes=largest, sha256=sha256)
    empty = num_bytes(dict.fromkeys(longest_paths, ()))
    of_one = num_bytes(dict.fromkeys(longest_paths, (shard,))) - empty
    return max(0, MOST_INDEX_BYTES - empty) * len(longest_paths) // of_one


def _encode_index(index: Index) -> bytes:
    content = {"schema": SCHEMA, **asdict(index)}
    return json.dumps(content, indent=1, ensure_ascii=False).encode()


def _parse_index(found: Mapping[str, Any]) -> Index:
    kind, encoding = found["kind"], found["format"]
    if kind not in get_args(Kind) or encoding not in get_args(Format):
        message = f"kind {kind!r}, format {encoding!r}"
        raise ValueError(message)
    return Index(
        kind=cast("Kind", kind),
        format=cast("Format", encoding),
        classes=tuple(_text(name) for name in found["classes"]),
        splits={_path(name): _parse_split(entry) for name, entry in found["splits"].items()},
    )


def _parse_split(entry: Mapping[str, Any]) -> Split:
    places = entry["places"]
    shards = tuple(
        Shard(
            path=_path(each["path"]),
            samples=_count(each["samples"]),
            bytes=_count(each["bytes"]),
            sha256=_text(each["sha256"]),
        )
        for each in entry["shards"]
    )
    split = Split(
        samples=_count(entry["samples"]),
        bytes=_count(entry["bytes"]),
        places=PlacesFile(
            path=_path(places["path"]),
            bytes=_count(places["bytes"]),
            sha256=_text(places["sha256"]),
        ),
        shards=shards,
    )
    sums = sum(shard.samples for shard in shards), sum(shard.bytes for shard in shards)
    if sums != (split.samples, split.bytes):
        message = f"its shards hold {sums[0]} samples and {sums[1]} bytes"
        raise ValueError(message)
    return split


def _text(value: Any) -> str:
    if not isinstance(value, str):
        message = f"{value!r} is not text"
        raise TypeError(message)
    return value


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        message = f"{value!r} is not a count"
        raise TypeError(message)
    return value


def _path(value: Any) -> str:
    """Check a path below the folder: it is opened, and asked for in the store, as it stands."""
    path = PurePosixPath(_text(value))
    is_plain = value.isprintable() and "\\" not in value and str(path) == value
    if not is_plain or path.is_absolute() or ".." in path.parts or not path.parts:
        message = f"{value!r} is not a path below the folder"
        raise ValueError(message)
    return value


def _columns(data: bytes, shards: Sequence[Shard]) -> Places:
    words, halves = array("Q", data), array("I", data)
    _little_endian(words)
    _little_endian(halves)
    numbers = array("I")
    for number, shard in enumerate(shards):
        numbers.extend(array("I", [number]) * shard.samples)
    return Places(shards=numbers, offsets=words[0::2], lengths=halves[2::4], labels=halves[3::4])


def _little_endian(numbers: array[int]) -> array[int]:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _require_bounds(path: Path, places: Places, index: Index, shards: Sequence[Shard]) -> None:
    """Check places against their shards: one outside would be read as a cut-off picture, later."""
    begin = 0
    for shard in shards:
        of_shard = slice(begin, begin + shard.samples)
        ends = map(add, places.offsets[of_shard], places.lengths[of_shard])
        if max(ends, default=0) > shard.bytes:
            raise _wrong(path, f"it names a place after the end of `{shard.path}`")
        begin += shard.samples
    highest = max(places.labels, default=-1)
    if index.kind == "pictures" and highest >= len(index.classes):
        raise _wrong(path, f"it names label {highest}, and there are {len(index.classes)} classes")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _wrong(path: Path, why: str) -> TrainingError:
    return TrainingError(f"`{path}` cannot be used: {why}", hint="get the dataset again")
