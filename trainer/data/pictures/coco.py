"""Reads and checks data sets in COCO's format: pictures, their objects, classes.

    DIR/train2017/*.jpg     DIR/annotations/instances_train2017.json
    DIR/val2017/*.jpg       DIR/annotations/instances_val2017.json

Category ids may have gaps, as COCO's 80 in 1 to 90 do. A label here is a place in the order of ids,
counted from 1; 0 is the background.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from trainer.common.errors import TrainingError
from trainer.common.json_text import parse_json

SplitName = Literal["train2017", "val2017"]
FORMAT_HINT = "a folder as COCO 2017's: train2017/, val2017/, annotations/; or --data synthetic"
# A polygon of fewer points has no area.
LEAST_NUMBERS = 6
_MOST_RUN_BITS = 40

Rle = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CocoObject:
    """One object. `box` is left, top, right, bottom in pixels, within the picture.

    `outline` is polygons (x, y, x, y, ...) or a run-length code as COCO writes it: `{size, counts}`.
    """

    annotation: int
    label: int
    box: tuple[float, float, float, float]
    outline: Sequence[array[float]] | Rle


@dataclass(frozen=True, slots=True, kw_only=True)
class CocoPicture:
    """One picture and the objects in it that can be learnt from: no crowds, nothing without area."""

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
    found = _read_json(path)
    try:
        images = {entry["id"]: entry for entry in found["images"]}
        categories = {entry["id"]: str(entry["name"]) for entry in found["categories"]}
        annotations = found["annotations"]
        if len(images) != len(found["images"]):
            raise _wrong(path, "two of its images have one id")
        objects = _group(path, annotations, images, sorted(categories))
        pictures = tuple(
            CocoPicture(
                id=number,
                path=folder / split / entry["file_name"],
                width=entry["width"],
                height=entry["height"],
                objects=tuple(objects.get(number, ())),
            )
            for number, entry in sorted(images.items())
        )
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise _wrong(path, f"it is not in COCO's format ({error!r:.200})") from None
    if not pictures:
        raise _wrong(path, "it lists no images")
    _require_files(folder / split, pictures, path)
    num_kept = sum(len(picture.objects) for picture in pictures)
    num_crowds = sum(1 for entry in annotations if entry.get("iscrowd"))
    return CocoSplit(
        annotations=path,
        categories={number: categories[number] for number in sorted(categories)},
        pictures=pictures,
        num_unusable=len(annotations) - num_crowds - num_kept,
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found: Any = parse_json(path.read_bytes())
    except FileNotFoundError:
        message = f"no `annotations/{path.name}` in `{path.parents[1]}`"
        raise TrainingError(message, hint=FORMAT_HINT) from None
    except (OSError, ValueError) as error:
        raise _wrong(path, str(error)) from None
    if not isinstance(found, dict):
        raise _wrong(path, "it is not a JSON object")
    return cast("dict[str, Any]", found)


def _group(
    path: Path,
    annotations: Sequence[Mapping[str, Any]],
    images: Mapping[int, Mapping[str, Any]],
    category_ids: Sequence[int],
) -> dict[int, list[CocoObject]]:
    """Give the objects to learn from by image id."""
    labels = {number: label for label, number in enumerate(category_ids, 1)}
    grouped: dict[int, list[CocoObject]] = {}
    for entry in annotations:
        category, image = entry["category_id"], entry["image_id"]
        if category not in labels:
            raise _wrong(path, f"annotation {entry['id']} has category {category}, which it lacks")
        if image not in images:
            raise _wrong(path, f"annotation {entry['id']} is of image {image}, which it lacks")
        # A crowd says where there are more objects than anybody counted, not where one is.
        if entry.get("iscrowd"):
            continue
        box = _corners(entry["bbox"], images[image])
        outline = _compact(entry["segmentation"])
        if not _is_of(outline, images[image]):
            raise _wrong(
                path, f"the outline of annotation {entry['id']} is not of its image's size"
            )
        if box is not None and outline:
            made = CocoObject(
                annotation=entry["id"] + 0, label=labels[category], box=box, outline=outline
            )
            grouped.setdefault(image, []).append(made)
    return grouped


def _corners(
    box: Sequence[float], image: Mapping[str, Any]
) -> tuple[float, float, float, float] | None:
    """Cut the box at the picture's edges; None if nothing is left."""
    left, top, width, height = box
    right, bottom = min(left + width, image["width"]), min(top + height, image["height"])
    # Sums are new numbers: one of the file's that is kept would keep a page of them in memory.
    left, top = max(left, 0.0) + 0.0, max(top, 0.0) + 0.0
    return (left, top, right, bottom) if right > left and bottom > top else None


def _compact(segmentation: Any) -> Sequence[array[float]] | Rle:
    """Drop polygons without area, and store the rest in a tenth of the memory of lists."""
    if isinstance(segmentation, dict):
        return cast("Rle", segmentation)
    return tuple(
        array("d", polygon)
        for polygon in segmentation
        if len(polygon) >= LEAST_NUMBERS and len(polygon) % 2 == 0
    )


def _is_of(outline: Sequence[array[float]] | Rle, image: Mapping[str, Any]) -> bool:
    """Tell whether an outline fits its picture: drawing it allocates what it says, unchecked."""
    width, height = image["width"], image["height"]
    if isinstance(outline, Mapping):
        return outline["size"] == [height, width] and _cover(outline["counts"], width * height)
    reach = 2 * (width + height)
    return all(
        math.isfinite(sum(polygon)) and -reach <= min(polygon) <= max(polygon) <= reach
        for polygon in outline
    )


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
