"""Finds the labelled pictures of a data set, in class folders or in tar shards; reads their bytes.

    DIR/train/<class>/*.jpg     class folders; a class's label is its place in the order of names
    DIR/train/*.tar             shards: <key>.jpg and <key>.cls (a number) beside each other
    DIR/classes.txt             the names of the shards' classes, one a line; may be missing
    DIR/val/...                 the same

A million pictures are a few dozen megabytes here and go to worker processes as they are.
"""

from __future__ import annotations

import os
import tarfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Protocol

from trainer.common.errors import TrainingError

SUFFIXES = frozenset({".jpg", ".jpeg", ".png"})
LABEL_SUFFIX = "cls"
CLASSES_FILE = "classes.txt"


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

    def read(self, index: int) -> bytes:
        """Give the encoded file; raises TrainingError where it cannot be read."""
        ...

    def name(self, index: int) -> str:
        """Say where the picture lies, for messages."""
        ...


def open_splits(folder: Path) -> tuple[Pictures, Pictures]:
    """Give training and validation pictures; raises TrainingError where their classes differ."""
    train, val = open_pictures(folder, "train"), open_pictures(folder, "val")
    if isinstance(train, ShardPictures) and isinstance(val, ShardPictures):
        # Without names a split knows the classes that it has seen.
        longer = max(train.classes, val.classes, key=len)
        train, val = train.with_classes(longer), val.with_classes(longer)
    if train.classes != val.classes:
        odd = sorted(set(train.classes) ^ set(val.classes))
        shown = ", ".join(odd[:5]) + (f" and {len(odd) - 5} more" if len(odd) > 5 else "")
        message = f"`{folder}` has other classes in train than in val: {shown} in one of them only"
        raise TrainingError(message, hint="each class needs a folder of pictures in both")
    return train, val


def open_pictures(folder: Path, split: str) -> Pictures:
    """Index one split of a data set; raises TrainingError where there is none or it is empty.

    Of a tar shard only the headers and labels are read.
    """
    root = folder / split
    if not root.is_dir():
        message = f"no folder `{root}`"
        hint = "DIR holds train/ and val/, and they class folders or tar shards"
        raise TrainingError(message, hint=hint)
    shards = sorted(entry.path for entry in _visible(root) if entry.name.endswith(".tar"))
    return _open_shards(folder, shards) if shards else _open_folders(root)


# --- class folders -----------------------------------------------------------------------------


class FolderPictures:
    """Pictures that are files of class folders."""

    def __init__(
        self, root: Path, classes: tuple[str, ...], names: Iterable[tuple[int, str]]
    ) -> None:
        self._root = root
        self.classes = classes
        self.labels: Sequence[int] = array("I")
        self._names = _Texts()
        for label, name in names:
            self.labels.append(label)
            self._names.append(name)

    def name(self, index: int) -> str:
        """Give the file's path."""
        return str(self._root / self.classes[self.labels[index]] / self._names[index])

    def read(self, index: int) -> bytes:
        """Read the file."""
        name = self.name(index)
        try:
            with open(name, "rb", buffering=0) as file:  # noqa: PTH123 - half of Path.read_bytes
                return file.readall()
        except OSError as error:
            raise _unreadable(name, error.strerror) from None


def _open_folders(root: Path) -> FolderPictures:
    classes = tuple(sorted(entry.name for entry in _visible(root) if entry.is_dir()))
    if not classes:
        message = f"`{root}` holds neither class folders nor tar shards"
        raise TrainingError(message, hint="one folder of pictures per class")
    return FolderPictures(root, classes, _files(root, classes))


def _files(root: Path, classes: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    for label, name in enumerate(classes):
        files = sorted(entry.name for entry in _visible(root / name) if _is_picture(entry.name))
        if not files:
            message = f"class folder `{root / name}` holds no picture"
            raise TrainingError(message, hint=f"files of {', '.join(sorted(SUFFIXES))}")
        for file in files:
            yield label, file


def _visible(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Entries without the hidden ones: some systems leave `._name.jpg` beside `name.jpg`."""
    try:
        with os.scandir(folder) as entries:
            yield from (entry for entry in entries if not entry.name.startswith("."))
    except OSError as error:
        raise _unreadable(str(folder), error.strerror) from None


def _is_picture(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in SUFFIXES  # noqa: PTH122 - a million names


# --- tar shards --------------------------------------------------------------------------------


@dataclass(kw_only=True)
class ShardPictures:
    """Pictures that are members of tar files, read by their place in them."""

    shards: Sequence[str]
    classes: tuple[str, ...]
    labels: Sequence[int]
    members: _Members
    _files: dict[int, int] = field(default_factory=dict[int, int])

    def with_classes(self, classes: tuple[str, ...]) -> ShardPictures:
        """Give the same pictures under these class names."""
        return ShardPictures(
            shards=self.shards, classes=classes, labels=self.labels, members=self.members
        )

    def name(self, index: int) -> str:
        """Give the shard's path and the member's name."""
        return f"{self.shards[self.members.shards[index]]}:{self.members.names[index]}"

    def read(self, index: int) -> bytes:
        """Read the member's bytes from its shard, which stays open."""
        shard, size = self.members.shards[index], self.members.sizes[index]
        try:
            if shard not in self._files:
                self._files[shard] = os.open(self.shards[shard], os.O_RDONLY | os.O_CLOEXEC)
            data = os.pread(self._files[shard], size, self.members.offsets[index])
        except OSError as error:
            raise _unreadable(self.name(index), error.strerror) from None
        if len(data) != size:
            raise _unreadable(self.name(index), "the shard ends before it")
        return data

    def __getstate__(self) -> dict[str, object]:
        """Leave open files behind: they are another process's."""
        return {**self.__dict__, "_files": {}}

    def __del__(self) -> None:
        for file in self._files.values():
            os.close(file)


class _Members:
    """Where the pictures lie in the shards, column by column."""

    def __init__(self) -> None:
        self.shards = array("I")
        self.offsets = array("Q")
        self.sizes = array("Q")
        self.names = _Texts()

    def append(self, shard: int, member: tarfile.TarInfo) -> None:
        self.shards.append(shard)
        self.offsets.append(member.offset_data)
        self.sizes.append(member.size)
        self.names.append(member.name)


def _open_shards(folder: Path, shards: Sequence[str]) -> ShardPictures:
    members = _Members()
    labels = array("I")
    for number, path in enumerate(shards):
        for member, label in _labelled(path):
            members.append(number, member)
            labels.append(label)
    if not labels:
        message = f"the tar shards in `{Path(shards[0]).parent}` hold no picture"
        raise TrainingError(message, hint="members <key>.jpg and <key>.cls")
    classes = _class_names(folder / CLASSES_FILE, max(labels) + 1)
    return ShardPictures(shards=shards, classes=classes, labels=labels, members=members)


def _labelled(path: str) -> Iterator[tuple[tarfile.TarInfo, int]]:
    """Give the shard's pictures in its order, each with its label."""
    pictures: dict[str, tarfile.TarInfo] = {}
    labels: dict[str, int] = {}
    try:
        with tarfile.open(path, "r:") as shard:
            for member in shard:
                key, suffix = _key(member.name)
                if member.isreg() and f".{suffix.lower()}" in SUFFIXES:
                    pictures[key] = member
                elif member.isreg() and suffix == LABEL_SUFFIX:
                    content = shard.extractfile(member)
                    assert content is not None
                    labels[key] = int(content.read())
    except (OSError, ValueError, tarfile.TarError) as error:
        raise _unreadable(path, str(error)) from None
    for key, member in pictures.items():
        if labels.get(key, -1) < 0:
            message = f"`{path}` has no label `{key}.{LABEL_SUFFIX}` for `{member.name}`"
            raise TrainingError(message, hint="a member of that name that holds a number from 0")
        yield member, labels[key]


def _key(name: str) -> tuple[str, str]:
    """Give `a/b` and `jpg` for `a/b.jpg`; the suffix begins at the file name's first dot."""
    path = PurePosixPath(name)
    stem, _, suffix = path.name.partition(".")
    return str(path.with_name(stem)) if stem else name, suffix


def _class_names(path: Path, num_seen: int) -> tuple[str, ...]:
    if not path.is_file():
        return tuple(str(number) for number in range(num_seen))
    names = tuple(path.read_text(encoding="utf-8").split("\n"))
    names = names[:-1] if names[-1] == "" else names
    if len(names) < num_seen:
        message = f"`{path}` names {len(names)} classes, but there is a label {num_seen - 1}"
        raise TrainingError(message, hint="one name a line, in the order of labels")
    return names


def _unreadable(name: str, why: str | None) -> TrainingError:
    return TrainingError(f"`{name}` cannot be read: {why}", hint="get the file again")


class _Texts:
    """Many short texts in two blocks of memory, so that a fork shares them and pickling is fast."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._ends = array("Q", [0])

    def append(self, text: str) -> None:
        self._data += os.fsencode(text)
        self._ends.append(len(self._data))

    def __getitem__(self, index: int) -> str:
        return os.fsdecode(bytes(self._data[self._ends[index] : self._ends[index + 1]]))
