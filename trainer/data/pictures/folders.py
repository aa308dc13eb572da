"""Indexes pictures that are files of class folders: DIR/train/<class>/*.jpg."""

from __future__ import annotations

import os
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from trainer.common.errors import TrainingError
from trainer.data.disk.texts import Texts
from trainer.data.pictures.files import SUFFIXES, FileRange, read_file, unreadable

# The kinds of files that a sentence names, most frequent first.
_MOST_KINDS = 5
_LONGEST_SUFFIX = 11
# Among kinds of files.
_FOLDER = "folder"


class FolderPictures:
    """Pictures that are files of class folders.

    `left_out` says in a sentence what else lies in those folders; empty where nothing does.
    """

    def __init__(self, root: Path, classes: tuple[str, ...]) -> None:
        self._root = root
        self.classes = classes
        self.labels: Sequence[int] = array("I")
        self.shard_sizes: Sequence[int] = ()
        self._names = Texts()
        left_out = Counter[str]()
        for label, name in _files(root, classes, left_out):
            self.labels.append(label)
            self._names.append(name)
        self.left_out = _left_out_text(root, left_out)

    def name(self, index: int) -> str:
        """Give the file's path."""
        # Not by pathlib, which would take as long as reading a small file.
        return f"{self._root}/{self.classes[self.labels[index]]}/{self._names[index]}"

    def file_range(self, index: int) -> FileRange:
        """Give the file."""
        return FileRange(self.name(index))

    def read(self, index: int) -> bytes:
        """Read the file."""
        return read_file(self.name(index))

    def announce(self, samples: Sequence[int]) -> None:
        """Do nothing: the system reads a disk ahead."""


def open_folders(root: Path) -> FolderPictures:
    """Index the class folders of a split; raises TrainingError where there is none, or no picture."""
    classes = tuple(sorted(entry.name for entry in visible(root) if _is_folder(entry)))
    if not classes:
        message = f"`{root}` holds neither class folders nor tar shards"
        raise TrainingError(message, hint="one folder of pictures per class")
    return FolderPictures(root, classes)


def _files(
    root: Path, classes: tuple[str, ...], left_out: Counter[str]
) -> Iterator[tuple[int, str]]:
    """Give label and name of each picture; counts what else is there, by its kind."""
    for label, name in enumerate(classes):
        files: list[str] = []
        for entry in visible(root / name):
            suffix = os.path.splitext(entry.name)[1].lower()  # noqa: PTH122 - a million names
            if suffix in SUFFIXES:
                files.append(entry.name)
            else:
                left_out[_FOLDER if _is_folder(entry) else _kind(suffix)] += 1
        if not files:
            message = f"class folder `{root / name}` holds no picture"
            raise TrainingError(message, hint=f"files of {', '.join(sorted(SUFFIXES))}")
        for file in sorted(files):
            yield label, file


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Tell folders and links to folders; DirEntry.is_dir raises at a link that leads to itself."""
    if entry.is_symlink():
        return os.path.isdir(entry.path)  # noqa: PTH112 - a million names
    return entry.is_dir()


def _kind(suffix: str) -> str:
    """Give a suffix for a message, unless what follows the name's last dot is none."""
    is_plain = suffix[1:].isalnum() and len(suffix) <= _LONGEST_SUFFIX
    return suffix if is_plain else "without suffix"


def _left_out_text(root: Path, left_out: Counter[str]) -> str:
    num_folders, num_files = left_out.pop(_FOLDER, 0), left_out.total()
    parts: list[str] = []
    if num_files:
        kinds = sorted(left_out.items(), key=lambda each: (-each[1], each[0]))
        shown = [f"{kind} {number}" for kind, number in kinds[:_MOST_KINDS]]
        if others := sum(number for _, number in kinds[_MOST_KINDS:]):
            shown.append(f"others {others}")
        which = "file that is" if num_files == 1 else "files that are"
        parts.append(f"{num_files} {which} neither .jpeg, .jpg nor .png ({', '.join(shown)})")
    if num_folders:
        parts.append(f"{num_folders} folder{'s' if num_folders > 1 else ''} in class folders")
    if not parts:
        return ""
    verb = "is" if num_files + num_folders == 1 else "are"
    return f"`{root}`: {' and '.join(parts)} {verb} left out"


def visible(folder: Path) -> Iterator[os.DirEntry[str]]:
    """List entries without hidden ones: some systems leave `._name.jpg` beside `name.jpg`."""
    try:
        with os.scandir(folder) as entries:
            yield from (entry for entry in entries if not entry.name.startswith("."))
    except OSError as error:
        raise unreadable(str(folder), error.strerror) from None
