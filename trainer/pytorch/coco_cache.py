"""Keeps a COCO split as arrays that all ranks of a node map, in place of JSON that each would parse."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np

from trainer.common.errors import TrainingError
from trainer.common.messages import warn
from trainer.data.pictures.coco import (
    CocoObject,
    CocoPicture,
    CocoSplit,
    SplitName,
    read_split,
    require_equal_categories,
)
from trainer.data.synthesize.folders import default_folder, whole_folder
from trainer.pytorch.maskrcnn_loading import encode_outline
from trainer.pytorch.strategy import Ranks

# Another number for other arrays of the same annotations, or where others are refused.
VERSION = 4
ABOUT = "about.json"
# Of each picture; `name_ends` and `object_ends` tell where its bytes and its objects end.
OF_PICTURES = ("ids", "widths", "heights", "name_ends", "object_ends")
# Of each object; `code_ends` tells where its run-length code ends.
OF_OBJECTS = ("annotations", "labels", "boxes", "code_ends")
BLOBS = ("names", "codes")

Arrays = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True, kw_only=True)
class CachedPictures(Sequence[CocoPicture]):
    """Pictures of mapped arrays, those in `rows`; each is made when it is asked for."""

    folder: Path
    arrays: Arrays
    rows: np.ndarray[Any, Any]

    @overload
    def __getitem__(self, place: int, /) -> CocoPicture: ...
    @overload
    def __getitem__(self, place: slice, /) -> CachedPictures: ...
    def __getitem__(self, place: int | slice, /) -> CocoPicture | CachedPictures:
        """Make the picture at a place, or choose those of a slice."""
        if isinstance(place, slice):
            return self.chosen(self.rows[place])
        row, arrays = int(self.rows[place]), self.arrays
        width, height = int(arrays["widths"][row]), int(arrays["heights"][row])
        first, end = _range(arrays["object_ends"], row)
        return CocoPicture(
            id=int(arrays["ids"][row]),
            path=self.folder / _bytes(arrays, "name", row).decode(),
            width=width,
            height=height,
            objects=tuple(self._object(each, height, width) for each in range(first, end)),
        )

    def __len__(self) -> int:
        return len(self.rows)

    def chosen(self, rows: np.ndarray[Any, Any]) -> CachedPictures:
        """Give the pictures of these rows alone."""
        return CachedPictures(folder=self.folder, arrays=self.arrays, rows=rows)

    def with_objects(self) -> CachedPictures:
        """Leave out pictures without an object to learn from."""
        return self.chosen(self.rows[self.num_objects > 0])

    @property
    def num_objects(self) -> np.ndarray[Any, Any]:
        """Count the objects of each picture."""
        return np.diff(self.arrays["object_ends"], prepend=0)[self.rows]

    @cached_property
    def is_wide(self) -> list[bool]:
        """Tell for each picture whether it is at least as wide as it is high."""
        wide: list[bool] = (self.arrays["widths"] >= self.arrays["heights"])[self.rows].tolist()
        return wide

    def _object(self, row: int, height: int, width: int) -> CocoObject:
        arrays = self.arrays
        left, top, right, bottom = arrays["boxes"][row].tolist()
        return CocoObject(
            annotation=int(arrays["annotations"][row]),
            label=int(arrays["labels"][row]),
            box=(left, top, right, bottom),
            outline={"size": [height, width], "counts": _bytes(arrays, "code", row)},
        )


@dataclass(frozen=True, kw_only=True)
class CachedSplit(CocoSplit):
    """A split with its pictures mapped."""

    pictures: CachedPictures


def open_cached(folder: Path, split: SplitName, ranks: Ranks) -> CachedSplit:
    """Map a split's arrays, which one rank of each node makes where there are none yet. A collective.

    They are made again once the file of annotations has changed. Raises TrainingError as `read_split`
    does, and for an outline that is none.
    """
    annotations = folder / "annotations" / f"instances_{split}.json"
    place = cache_folder(annotations)
    if ranks.world.local_rank == 0 and not (place / ABOUT).exists():
        with whole_folder(
            place, lambda _: (place / ABOUT).exists(), what="cache of annotations"
        ) as to:
            write_cache(read_split(folder, split), to)
    ranks.strategy.barrier()
    about = json.loads((place / ABOUT).read_bytes())
    names = (*OF_PICTURES, *OF_OBJECTS, *BLOBS)
    arrays = {name: np.load(place / f"{name}.npy", mmap_mode="r") for name in names}
    rows = np.arange(len(arrays["ids"]))
    return CachedSplit(
        annotations=annotations,
        categories={int(number): name for number, name in about["categories"]},
        pictures=CachedPictures(folder=folder / split, arrays=arrays, rows=rows),
        num_unusable=about["num_unusable"],
    )


def open_validation(
    folder: Path, training: CachedSplit, ranks: Ranks, *, is_needed: bool
) -> CachedSplit | None:
    """Map the split to evaluate on; None where there is none, as beside COCO's train2017 alone.

    A collective. Raises TrainingError where one that is needed is missing, or has other categories.
    """
    needed = ("val2017", "annotations/instances_val2017.json")
    missing = [name for name in needed if not (folder / name).exists()]
    if not missing:
        found = open_cached(folder, "val2017", ranks)
        require_equal_categories(training.categories, found.categories, folder)
        return found
    told = f"no `{missing[0]}` in `{folder}`"
    if is_needed:
        message = f"--evaluate-only: {told}"
        raise TrainingError(message, hint="a folder that has val2017")
    if ranks.world.is_main:
        warn(f"{told}: nothing is evaluated, as with --no-evaluate")
    return None


def cache_folder(annotations: Path) -> Path:
    """Name the cache by the file, its size and the time of its last change."""
    try:
        found = annotations.stat()
        size, changed_ns = found.st_size, found.st_mtime_ns
    except OSError:  # told by who reads it
        size, changed_ns = 0, 0
    where = str(annotations.resolve())
    return default_folder(
        kind="coco-cache", version=VERSION, file=where, size=size, changed_ns=changed_ns
    )


def write_cache(split: CocoSplit, folder: Path) -> None:
    """Write the arrays of a split, with outlines as run-length codes."""
    pictures, objects = split.pictures, [each for one in split.pictures for each in one.objects]
    names, codes = _Blob(), _Blob()
    for picture in pictures:
        names.add(str(picture.path.relative_to(split.annotations.parents[1])).partition("/")[2])
        for each in picture.objects:
            codes.add(encode_outline(each, picture)["counts"])
    made: dict[str, np.ndarray[Any, Any]] = {
        "ids": np.array([each.id for each in pictures], np.int64),
        "widths": np.array([each.width for each in pictures], np.int32),
        "heights": np.array([each.height for each in pictures], np.int32),
        "object_ends": np.cumsum([len(each.objects) for each in pictures], dtype=np.int64),
        "annotations": np.array([each.annotation for each in objects], np.int64),
        "labels": np.array([each.label for each in objects], np.int32),
        "boxes": np.array([each.box for each in objects], np.float64).reshape(-1, 4),
        **names.arrays("name"),
        **codes.arrays("code"),
    }
    for name, values in made.items():
        np.save(folder / f"{name}.npy", values)
    about = {
        "categories": list(split.categories.items()),
        "num_unusable": split.num_unusable,
    }
    (folder / ABOUT).write_text(json.dumps(about), encoding="utf-8")


class _Blob:
    """Bytes of many things one behind the other, and where each ends."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._ends = array("q")

    def add(self, text: str | bytes) -> None:
        self._data += text.encode() if isinstance(text, str) else text
        self._ends.append(len(self._data))

    def arrays(self, name: str) -> dict[str, np.ndarray[Any, Any]]:
        return {
            f"{name}s": np.frombuffer(bytes(self._data), np.uint8),
            f"{name}_ends": np.array(self._ends, np.int64),
        }


def _range(ends: np.ndarray[Any, Any], row: int) -> tuple[int, int]:
    return (int(ends[row - 1]) if row else 0), int(ends[row])


def _bytes(arrays: Arrays, name: str, row: int) -> bytes:
    first, end = _range(arrays[f"{name}_ends"], row)
    return arrays[f"{name}s"][first:end].tobytes()
