"""Reads and checks data sets in COCO's format: pictures, their objects, classes.

    DIR/train2017/*.jpg     DIR/annotations/instances_train2017.json
    DIR/val2017/*.jpg       DIR/annotations/instances_val2017.json

Category ids may have gaps, as COCO's 80 in 1 to 90 do. A label here is a place in the order of ids,
counted from 1; 0 is the background.
"""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, cast

from trainer.common.errors import TrainingError
from trainer.common.json_text import parse_json
from trainer.data.shards.index import INDEX_FILE

SplitName = Literal["train2017", "val2017"]
FORMAT_HINT = "a folder as COCO 2017's: train2017/, val2017/, annotations/; or --data synthetic"
# A polygon of fewer points has no area.
LEAST_NUMBERS = 6
# Pixels of a box's shorter side. Mirrored and scaled in fp32, the sides of a smaller one may come to lie on each other.
LEAST_SIDE = 1 / 64
_MOST_RUN_BITS = 40
# What the arrays of trainer.pytorch.coco_cache hold.
_MOST_ID, _MOST_SIDE = (1 << 63) - 1, (1 << 31) - 1
# What comes of reading an entry that is not as it should be.
_ODD = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)

Rle = Mapping[str, Any]
# Polygons (x, y, x, y, ...) or a run-length code as COCO writes it: `{size, counts}`.
Outline: TypeAlias = "Sequence[array[float]] | Rle"
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CocoImage:
    """One picture as a file of annotations lists it."""

    id: int
    file_name: str
    width: int
    height: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CocoAnnotation:
    """One object, or crowd, as a file of annotations has it. `box` is left, top, width, height.

    `id` is the file's, for messages: others may have it, too. `outline` is empty where there is none.
    """

    id: int
    image: CocoImage
    category: int
    is_crowd: bool
    box: tuple[float, float, float, float]
    area: float
    outline: Outline


@dataclass(frozen=True, kw_only=True)
class CocoAnnotations:
    """What a file of annotations says, checked: images by id, names by category id, and its order of annotations."""

    images: Mapping[int, CocoImage]
    categories: Mapping[int, str]
    annotations: Sequence[CocoAnnotation]


@dataclass(frozen=True, slots=True, kw_only=True)
class CocoObject:
    """One object. `box` is left, top, right, bottom in pixels, within the picture."""

    annotation: int
    label: int
    box: tuple[float, float, float, float]
    outline: Outline


@dataclass(frozen=True, slots=True, kw_only=True)
class CocoPicture:
    """One picture and the objects in it that can be learnt from: no crowds, nothing without outline or sides."""

    id: int
    path: Path
    width: int
    height: int
    objects: tuple[CocoObject, ...]


@dataclass(frozen=True, kw_only=True)
class CocoSplit:
    """A split's pictures in the order of ids; `categories` maps category ids to names."""

    annotations: Path
    categories: Mapping[int, str]
    pictures: Sequence[CocoPicture]
    num_unusable: int

    @property
    def classes(self) -> tuple[str, ...]:
        """Name the labels 1, 2, ..."""
        return tuple(self.categories.values())

    @property
    def category_ids(self) -> tuple[int, ...]:
        """Give the category ids of the labels 1, 2, ..."""
        return tuple(self.categories)


def require_equal_categories(
    train: Mapping[int, str], val: Mapping[int, str], folder: Path
) -> None:
    """Raise TrainingError where one of the splits has categories that the other lacks."""
    if train != val:
        odd = sorted(set(train.items()) ^ set(val.items()))[:5]
        shown = ", ".join(f"{number} {name}" for number, name in odd)
        message = f"train2017 and val2017 of `{folder}` have other categories: {shown} in one only"
        raise TrainingError(message, hint="both files list the same `categories`")


def read_split(folder: Path, split: SplitName) -> CocoSplit:
    """Read a split's annotations; raises TrainingError where they or a picture are missing or wrong."""
    path = folder / "annotations" / f"instances_{split}.json"
    found = read_annotations(path)
    if not found.images:
        raise _wrong(path, "it lists no images")
    labels = {number: label for label, number in enumerate(found.categories, 1)}
    objects: dict[int, list[CocoObject]] = {}
    num_unusable = 0
    for each in found.annotations:
        # A crowd says where there are more objects than anybody counted, not where one is.
        if each.is_crowd:
            continue
        box = _corners(each)
        if box is None or not each.outline:
            num_unusable += 1
            continue
        made = CocoObject(
            annotation=each.id, label=labels[each.category], box=box, outline=each.outline
        )
        objects.setdefault(each.image.id, []).append(made)
    pictures = tuple(
        CocoPicture(
            id=number,
            path=folder / split / image.file_name,
            width=image.width,
            height=image.height,
            objects=tuple(objects.get(number, ())),
        )
        for number, image in sorted(found.images.items())
    )
    _require_files(folder / split, pictures, path)
    return CocoSplit(
        annotations=path,
        categories=found.categories,
        pictures=pictures,
        num_unusable=num_unusable,
    )


def read_annotations(path: Path) -> CocoAnnotations:
    """Read and check a file of annotations, for training and evaluation alike.

    Raises TrainingError, naming the entry, for what is not as COCO has it. An `area` that is missing is
    the box's, a missing `iscrowd` is 0.
    """
    found = _read_json(path)
    listed = _read_each(path, found, "images", "image", _image)
    images = {image.id: image for image in listed}
    if len(images) != len(listed):
        raise _wrong(path, "two of its images have one id")
    categories = dict(sorted(_read_each(path, found, "categories", "category", _category)))
    annotations = _read_each(
        path,
        found,
        "annotations",
        "annotation",
        lambda entry: _annotation(path, entry, images, categories),
    )
    return CocoAnnotations(images=images, categories=categories, annotations=annotations)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found: Any = parse_json(path.read_bytes())
    except FileNotFoundError:
        raise _missing(path) from None
    except (OSError, ValueError) as error:
        raise _wrong(path, str(error)) from None
    if not isinstance(found, dict):
        raise _wrong(path, "it is not a JSON object")
    return cast("dict[str, Any]", found)


def _missing(path: Path) -> TrainingError:
    folder = path.parents[1]
    if (folder / INDEX_FILE).exists():
        message = f"`{folder}` holds shards, and Mask R-CNN reads COCO's folders only"
        hint = "the folder that was packed: train2017/, val2017/, annotations/"
        return TrainingError(message, hint=hint)
    return TrainingError(f"no `annotations/{path.name}` in `{folder}`", hint=FORMAT_HINT)


def _read_each(
    path: Path, found: Mapping[str, Any], key: str, kind: str, read: Callable[[Any], T]
) -> list[T]:
    """Read the entries of a list; raises TrainingError that names the one that cannot be read."""
    entries = found.get(key)
    if not isinstance(entries, list):
        raise _wrong(path, f"it is not in COCO's format: it has no list of `{key}`")
    made: list[T] = []
    entry: Any = None
    try:
        for entry in cast("list[Any]", entries):
            made.append(read(entry))
    except _ODD as error:
        why = f"no `{error.args[0]}`" if isinstance(error, KeyError) else str(error)
        told = _name(kind, len(made), entry)
        raise _wrong(path, f"{told} is not in COCO's format: {why:.200}") from None
    return made


def _name(kind: str, place: int, entry: Any) -> str:
    number = cast("dict[str, Any]", entry).get("id") if isinstance(entry, dict) else None
    return f"{kind} {number!r:.50}" if isinstance(number, int | str) else f"{kind} at place {place}"


def _image(entry: Any) -> CocoImage:
    return CocoImage(
        id=_whole(entry["id"], _MOST_ID),
        file_name=os.fspath(entry["file_name"]),
        width=_whole(entry["width"], _MOST_SIDE),
        height=_whole(entry["height"], _MOST_SIDE),
    )


def _category(entry: Any) -> tuple[int, str]:
    return _whole(entry["id"], _MOST_ID), str(entry["name"])


def _annotation(
    path: Path, entry: Any, images: Mapping[int, CocoImage], categories: Mapping[int, str]
) -> CocoAnnotation:
    number = _whole(entry["id"], _MOST_ID)
    category, image = entry["category_id"], entry["image_id"]
    if category not in categories:
        raise _wrong(path, f"annotation {number} has category {category!r}, which it lacks")
    if image not in images:
        raise _wrong(path, f"annotation {number} is of image {image!r}, which it lacks")
    left, top, width, height = entry["bbox"]
    if not math.isfinite(left + top + width + height):
        message = "its box is not finite"
        raise ValueError(message)
    area, crowd = entry.get("area"), entry.get("iscrowd") or 0
    if crowd not in (0, 1):
        message = f"`iscrowd` is {crowd!r}, not 0 or 1"
        raise ValueError(message)
    outline = _outline(entry.get("segmentation") or (), images[image])
    if outline is None:
        raise _wrong(path, f"the outline of annotation {number} is not of its image's size")
    # Sums are new numbers: one of the file's that is kept would keep a page of them in memory.
    return CocoAnnotation(
        id=number,
        image=images[image],
        category=_whole(category, _MOST_ID),
        is_crowd=bool(crowd),
        box=(left + 0.0, top + 0.0, width + 0.0, height + 0.0),
        area=float(width * height if area is None else area) + 0.0,
        outline=outline,
    )


def _whole(value: Any, most: int) -> int:
    """Give a whole number, which may have a point; raises ValueError for anything else."""
    if isinstance(value, int | float) and 0 <= value <= most and value == int(value):
        return int(value) + 0
    message = f"{value!r:.50} is no whole number from 0 to {most}"
    raise ValueError(message)


def _corners(each: CocoAnnotation) -> tuple[float, float, float, float] | None:
    """Cut the box at the picture's edges; None if next to nothing is left."""
    left, top, width, height = each.box
    right, bottom = min(left + width, each.image.width), min(top + height, each.image.height)
    left, top = max(left, 0.0), max(top, 0.0)
    is_large = min(right - left, bottom - top) >= LEAST_SIDE
    return (left, top, right, bottom) if is_large else None


def _outline(segmentation: Any, image: CocoImage) -> Outline | None:
    """Drop polygons without area, and store the rest in a tenth of the memory of lists.

    None for what does not fit the picture: drawing it allocates what it says, unchecked.
    """
    width, height = image.width, image.height
    if isinstance(segmentation, dict):
        code = cast("Rle", segmentation)
        is_of = code["size"] == [height, width] and _cover(code["counts"], width * height)
        return {"size": [height, width], "counts": code["counts"]} if is_of else None
    if not all(isinstance(polygon, list) for polygon in segmentation):
        message = "an outline is a list of polygons, or {size, counts}"
        raise ValueError(message)
    polygons = tuple(
        array("d", polygon)
        for polygon in segmentation
        if len(polygon) >= LEAST_NUMBERS and len(polygon) % 2 == 0
    )
    reach = 2 * (width + height)
    is_of = all(
        math.isfinite(sum(polygon)) and -reach <= min(polygon) <= max(polygon) <= reach
        for polygon in polygons
    )
    return polygons if is_of else None


def _cover(counts: str | Sequence[float], num_pixels: int) -> bool:
    """Tell whether runs are of so many pixels: pycocotools leaves others as they lie in memory."""
    try:
        runs = _unpack(counts) if isinstance(counts, str) else counts
        in_picture = 0 <= min(runs) <= max(runs) <= num_pixels
        return in_picture and sum(int(run) for run in runs) == num_pixels
    except ValueError:
        return False


def _unpack(packed: str) -> list[int]:
    """Read a compressed run-length code as pycocotools' `rleFrString` does, which does not check it.

    Each character holds 5 bits and whether more follow; from the fourth run on the run two before is
    to be added. Raises ValueError for what is no such code.
    """
    runs: list[int] = []
    value = num_bits = 0
    for code in packed.encode("ascii"):
        bits = code - ord("0")
        if not 0 <= bits < 1 << 6 or num_bits > _MOST_RUN_BITS:
            raise ValueError(packed)
        value |= (bits & 0x1F) << num_bits
        num_bits += 5
        if bits & 0x20:
            continue
        if bits & 0x10:
            value -= 1 << num_bits
        runs.append(value + runs[-2] if len(runs) > 2 else value)
        value = num_bits = 0
    if num_bits:
        raise ValueError(packed)
    return runs


def _require_files(folder: Path, pictures: Sequence[CocoPicture], path: Path) -> None:
    # One listing instead of a question for each of 118,000 files.
    there = set(folder.rglob("*"))
    missing = [picture.path for picture in pictures if picture.path not in there]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        shown = missing[0]
        if shown.is_relative_to(folder.parent):  # not where `file_name` is an absolute path
            shown = shown.relative_to(folder.parent)
        message = f"`{shown}`{more}, listed by `{path.name}`, is not in `{folder.parent}`"
        raise TrainingError(message, hint=FORMAT_HINT)


def _wrong(path: Path, what: str) -> TrainingError:
    return TrainingError(f"`{path}` cannot be used: {what}")
