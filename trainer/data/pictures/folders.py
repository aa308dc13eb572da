"""Indexes pictures that are files of class folders: DIR/train/<class>/*.jpg."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from trainer.common.errors import TrainingError
from trainer.data.disk.texts import Texts
from trainer.data.pictures.files import SUFFIXES, read_file, unreadable


class FolderPictures:
    """Pictures that are files of class folders."""

    def __init__(
        self, root: Path, classes: tuple[str, ...], names: Iterable[tuple[int, str]]
    ) -> None:
        self._root = root
        self.classes = classes
        self.labels: Sequence[int] = array("I")
        self.shard_sizes: Sequence[int] = ()
        self._names = Texts()
        for label, name in names:
            self.labels.append(label)
            self._names.append(name)

    def name(self, index: int) -> str:
        """Give the file's path."""
        # Not by pathlib, which would take as long as reading a small file.
        return f"{self._root}/{self.classes[self.labels[index]]}/{self._names[index]}"

    def read(self, index: int) -> bytes:
        """Read the file."""
        return read_file(self.name(index))

    def announce(self, samples: Sequence[int]) -> None:
        """Do nothing: the system reads a disk ahead."""


def open_folders(root: Path) -> FolderPictures:
    """Index the class folders of a split; raises TrainingError where there is none, or no picture."""
    classes = tuple(sorted(entry.name for entry in visible(root) if entry.is_dir()))
    if not classes:
        message = f"`{root}` holds neither class folders nor tar shards"
        raise TrainingError(message, hint="one folder of pictures per class")
    return FolderPictures(root, classes, _files(root, classes))


def _files(root: Path, classes: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    for label, name in enumerate(classes):
        files = sorted(entry.name for entry in visible(root / name) if _is_picture(entry.name))
        if not files:
            message = f"class folder `{root / name}` holds no picture"
            raise TrainingError(message, hint=f"files of {', '.join(sorted(SUFFIXES))}")
        for file in files:
            yield label, file


def visible(folder: Path) -> Iterator[os.DirEntry[str]]:
    """List entries without hidden ones: some systems leave `._name.jpg` beside `name.jpg`."""
    try:
        with os.scandir(folder) as entries:
            yield from (entry for entry in entries if not entry.name.startswith("."))
    except OSError as error:
        raise unreadable(str(folder), error.strerror) from None


def _is_picture(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in SUFFIXES  # noqa: PTH122 - a million names
