"""Finds the pictures to pack: class folders, or a folder in COCO's format with its annotations."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

from trainer.common.errors import TrainingError
from trainer.common.json_text import parse_json
from trainer.common.messages import few
from trainer.data.pictures.folders import FolderPictures, open_folders
from trainer.data.shards.index import Kind, read_index

# Far above any picture's area.
_MAX_FIGURE = 1e12
COCO_SPLITS = {"train": "train2017", "val": "val2017"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One picture file; `label` as places hold it, `class_name` or COCO's `record` beside it.

    `record` is JSON of the image's entry, its annotations, and the categories they name.
    """

    path: str
    label: int
    class_name: str = ""
    record: bytes = b""


class Samples(Protocol):
    """The samples of one split, in the order of names."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Sample: ...


@dataclass(frozen=True, kw_only=True)
class FileFacts:
    """Size in bytes of each sample's file; `digest` changes with any sample's path, size or time."""

    sizes: Sequence[int]
    digest: bytes


@dataclass(frozen=True, kw_only=True)
class Source:
    """A dataset's folder as it is to be packed; `left_out` has a sentence for each split with such files."""

    kind: Kind
    classes: tuple[str, ...]
    splits: Mapping[str, Samples]
    left_out: Sequence[str] = ()


def open_source(folder: Path) -> Source:
    """Open the folder's samples; raises TrainingError where it cannot be packed."""
    if not folder.is_dir():
        message = f"no folder `{folder}`"
        raise TrainingError(message, hint="DIR/train/<class>/*.jpg, or a folder as COCO 2017's")
    if (folder / "annotations").is_dir():
        return _open_coco(folder)
    return _open_class_folders(folder)


def _open_class_folders(folder: Path) -> Source:
    if read_index(folder) is not None:
        message = f"`{folder}` holds shards already"
        raise TrainingError(message, hint="a folder of class folders can be packed")
    if not (folder / "train").is_dir():
        message = f"no folder `{folder / 'train'}`"
        raise TrainingError(message, hint="DIR/train/<class>/*.jpg, or a folder as COCO 2017's")
    train = open_folders(folder / "train")
    splits: dict[str, Samples] = {"train": FolderSamples(train)}
    left_out = [train.left_out]
    if (folder / "val").is_dir():
        val = open_folders(folder / "val")
        splits["val"] = FolderSamples(val)
        left_out.append(val.left_out)
        if odd := sorted(set(train.classes) ^ set(val.classes)):
            message = f"`{folder}` has other classes in train than in val: {few(odd)}"
            raise TrainingError(message, hint="each class needs a folder of pictures in both")
    for name in train.classes:
        if not name.isprintable():
            message = f"class folder {name!r} has a name that cannot be written into an index"
            raise TrainingError(message, hint="rename it")
    return Source(
        kind="pictures",
        classes=train.classes,
        splits=splits,
        left_out=[text for text in left_out if text],
    )


def look_at_files(samples: Samples) -> FileFacts:
    """Ask each file's size and time; raises TrainingError for what is no file."""
    sizes, digest = array("Q"), hashlib.sha256()
    for index in range(len(samples)):
        sample = samples[index]
        try:
            found = os.stat(sample.path)  # noqa: PTH116 - a million files
        except OSError as error:
            message = f"`{sample.path}` cannot be read: {error.strerror}"
            raise TrainingError(message, hint="get the file again") from None
        if not stat.S_ISREG(found.st_mode):
            message = f"`{sample.path}` is not a file"
            raise TrainingError(message, hint="take it out of the folder")
        sizes.append(found.st_size)
        facts = f"{sample.path}\0{found.st_size} {found.st_mtime_ns} {sample.label}\n"
        digest.update(os.fsencode(facts) + sample.record)
    return FileFacts(sizes=sizes, digest=digest.digest())


class FolderSamples:
    """Samples of class folders."""

    def __init__(self, pictures: FolderPictures) -> None:
        self._pictures = pictures

    def __len__(self) -> int:
        return len(self._pictures.labels)

    def __getitem__(self, index: int) -> Sample:
        label = self._pictures.labels[index]
        return Sample(
            path=self._pictures.name(index),
            label=label,
            class_name=self._pictures.classes[label],
        )


# --- COCO --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CocoSamples:
    """Samples of a COCO split in the order of image ids, each with all that the file says of it."""

    folder: str
    images: Sequence[Mapping[str, Any]]
    annotations: Mapping[int, Sequence[Mapping[str, Any]]]
    categories: Mapping[int, Mapping[str, Any]] = field(repr=False)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Sample:
        image = self.images[index]
        annotations = self.annotations.get(image["id"], ())
        named = sorted({entry["category_id"] for entry in annotations})
        record = {
            "image": image,
            "annotations": annotations,
            "categories": [self.categories[number] for number in named],
        }
        path = f"{self.folder}/{image['file_name']}"
        try:
            told = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()
        except UnicodeEncodeError as error:
            message = f"what the annotations say of `{path}` is not text: {error.reason}"
            raise TrainingError(message, hint="get the file again") from None
        return Sample(path=path, label=image["id"], record=told)


def _open_coco(folder: Path) -> Source:
    splits: dict[str, Samples] = {}
    classes: dict[str, tuple[str, ...]] = {}
    for name, coco_name in COCO_SPLITS.items():
        path = folder / "annotations" / f"instances_{coco_name}.json"
        if name == "val" and not path.exists():
            continue
        splits[name], classes[name] = _read_coco(path, folder / coco_name)
    if len(set(classes.values())) > 1:
        message = f"train2017 and val2017 of `{folder}` have other categories"
        raise TrainingError(message, hint="both files list the same `categories`")
    return Source(kind="coco", classes=classes["train"], splits=splits)


def _read_coco(path: Path, pictures: Path) -> tuple[CocoSamples, tuple[str, ...]]:
    try:
        found: Any = parse_json(path.read_bytes())
        images = sorted(found["images"], key=lambda entry: entry["id"])
        categories = {entry["id"]: entry for entry in found["categories"]}
        annotations = _by_image(found["annotations"], categories)
        ids = [_image_id(entry) for entry in images]
        classes = tuple(str(categories[number]["name"]) for number in sorted(categories))
        "".join(classes).encode()  # an index holds them as UTF-8
    except FileNotFoundError:
        message = f"no `annotations/{path.name}` in `{path.parents[1]}`"
        raise TrainingError(message, hint="a folder as COCO 2017's") from None
    except OSError as error:
        raise _wrong(path, str(error.strerror)) from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise _wrong(path, f"it is not in COCO's format ({error!r:.200})") from None
    if not ids or len(set(ids)) != len(ids):
        raise _wrong(path, "two of its images have one id" if ids else "it lists no images")
    if strays := set(annotations) - set(ids):
        raise _wrong(path, f"an annotation is of image {min(strays)}, which it does not list")
    samples = CocoSamples(
        folder=str(pictures), images=images, annotations=annotations, categories=categories
    )
    return samples, classes


def _by_image(
    annotations: Sequence[Mapping[str, Any]], categories: Mapping[int, object]
) -> dict[int, list[Mapping[str, Any]]]:
    """Group the usable annotations by image: boxes of four numbers, categories that are listed."""
    grouped: dict[int, list[Mapping[str, Any]]] = {}
    for entry in annotations:
        figures = [*entry["bbox"], entry.get("area", 0), entry.get("iscrowd", 0)]
        category = entry["category_id"]
        is_known = isinstance(category, int) and category in categories and len(figures) == 6
        if not is_known or not all(map(_is_figure, figures)):
            message = f"annotation {entry.get('id')}"
            raise ValueError(message)
        grouped.setdefault(entry["image_id"], []).append(entry)
    return grouped


def _is_figure(value: Any) -> bool:
    """Tell whether a value is a number that fits a 32-bit float; JSON's NaN does not."""
    return isinstance(value, int | float) and abs(value) < _MAX_FIGURE


def _image_id(entry: Mapping[str, Any]) -> int:
    number, name = entry["id"], entry["file_name"]
    is_plain = isinstance(name, str) and name.isprintable() and "/" not in name
    is_plain = is_plain and name not in {"", ".", ".."}
    if not is_plain or not isinstance(number, int) or not 0 <= number < 2**32:
        message = f"image {number!r}, {name!r}"
        raise ValueError(message)
    return cast("int", number)


def _wrong(path: Path, what: str) -> TrainingError:
    return TrainingError(f"`{path}` cannot be used: {what}", hint="get the file again")
