"""Opens the labelled pictures of a data set: class folders, packed or streamed shards, tar files.

    DIR/train/<class>/*.jpg     class folders; a class's label is its place in the order of names
    DIR/index.json              a packed dataset (docs/shards.md), its shards beside it
                                or in the blob store, for a streamed input (docs/inputs.md)
    DIR/train/*.tar             tar shards without an index: <key>.jpg and <key>.cls (a number)
                                beside each other, class names in DIR/classes.txt
    DIR/val/...                 the same

A million pictures are a few dozen megabytes here and go to worker processes as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from trainer.common.errors import TrainingError
from trainer.common.messages import few, warn
from trainer.data.pictures.files import FileRange
from trainer.data.pictures.folders import FolderPictures, open_folders, visible
from trainer.data.pictures.packed import open_packed
from trainer.data.pictures.tars import TarPictures, open_tars
from trainer.data.shards.index import Index, read_index
from trainer.data.streaming.source import find_source, open_streamed


class Pictures(Protocol):
    """The pictures of one split, in an order that is the same everywhere; picklable."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes; a label is a place in here."""
        ...

    @property
    def labels(self) -> Sequence[int]:
        """The label of each picture; its length is the number of pictures."""
        ...

    @property
    def shard_sizes(self) -> Sequence[int]:
        """The number of pictures of each shard, in order; empty if the order ignores shards."""
        ...

    def announce(self, samples: Sequence[int]) -> None:
        """Begin to fetch samples that are read soon; returns at once."""
        ...

    def file_range(self, index: int) -> FileRange | None:
        """Give the file, or the part of one, that another process can read; None where none can."""
        ...

    def read(self, index: int) -> bytes:
        """Give the encoded file; raises TrainingError where it cannot be read."""
        ...

    def name(self, index: int) -> str:
        """Give the picture's path or its offset in a shard, for messages."""
        ...


class Repeated:
    """Pictures several times over: copy c of picture i is number `i + c * len(labels)`."""

    def __init__(self, pictures: Pictures, times: int) -> None:
        self._pictures = pictures
        self._number = len(pictures.labels)
        self.classes = pictures.classes
        self.shard_sizes = pictures.shard_sizes
        self.labels = [*pictures.labels] * times

    def announce(self, samples: Sequence[int]) -> None:
        """Announce each picture once."""
        self._pictures.announce(list(dict.fromkeys(each % self._number for each in samples)))

    def file_range(self, index: int) -> FileRange | None:
        """Give the place of any of the copies."""
        return self._pictures.file_range(index % self._number)

    def read(self, index: int) -> bytes:
        """Give the encoded file of any of the copies."""
        return self._pictures.read(index % self._number)

    def name(self, index: int) -> str:
        """Give the picture's name."""
        return self._pictures.name(index % self._number)


def open_splits(folder: Path, *, is_main: bool = True) -> tuple[Pictures, Pictures]:
    """Give training and validation pictures; raises TrainingError where their classes differ.

    The main rank warns of what lies in class folders and is no picture.
    """
    train, val = open_pictures(folder, "train"), open_pictures(folder, "val")
    for pictures in (train, val):
        if is_main and isinstance(pictures, FolderPictures) and pictures.left_out:
            warn(pictures.left_out)
    if isinstance(train, TarPictures) and isinstance(val, TarPictures):
        # Without names a split knows the classes that it has seen.
        longer = max(train.classes, val.classes, key=len)
        train, val = train.with_classes(longer), val.with_classes(longer)
    if train.classes != val.classes:
        odd = few(sorted(set(train.classes) ^ set(val.classes)))
        message = f"`{folder}` has other classes in train than in val: {odd} in one of them only"
        raise TrainingError(message, hint="each class needs a folder of pictures in both")
    return train, val


def open_pictures(folder: Path, split: str) -> Pictures:
    """Index one split of a data set; raises TrainingError where there is none or it is empty.

    Of tar shards without an index the headers and labels are read.
    """
    index = read_index(folder)
    if index is not None:
        return _open_index(folder, index, split)
    root = folder / split
    if not root.is_dir():
        message = f"no folder `{root}`"
        hint = "DIR holds train/ and val/, and they class folders or tar shards"
        raise TrainingError(message, hint=hint)
    shards = sorted(entry.path for entry in visible(root) if entry.name.endswith(".tar"))
    return open_tars(folder, shards) if shards else open_folders(root)


def _open_index(folder: Path, index: Index, split: str) -> Pictures:
    if index.kind != "pictures":
        message = f"`{folder}` is a packed dataset of kind {index.kind}, not of labelled pictures"
        raise TrainingError(message, hint="launch data pack FOLDER --to DIR packs class folders")
    if not index.splits.get(split) or not index.splits[split].samples:
        message = f"`{folder}` has no packed pictures of `{split}`"
        raise TrainingError(message, hint="launch data pack FOLDER --to DIR")
    source = find_source(folder)
    if source is not None:
        return open_streamed(folder, source, split)
    return open_packed(folder, index, split)
