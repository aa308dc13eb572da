"""Indexes pictures in tar files that were packed elsewhere and have no index.

DIR/train/*.tar             <key>.jpg and <key>.cls (a number) beside each other; no dot in the key's last part
DIR/classes.txt             the names of the classes, one a line; may be missing
"""

from __future__ import annotations

import tarfile
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from trainer.common.errors import TrainingError
from trainer.data.disk.texts import Texts
from trainer.data.pictures.files import SUFFIXES, FileRange, close_shards, unreadable

LABEL_SUFFIX = "cls"
CLASSES_FILE = "classes.txt"
# Far above any data set's; a network's last layer has a row for each.
MOST_CLASSES = 1 << 24
# More than any label has.
_MOST_LABEL_BYTES = 40
_READ_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class TarPictures:
    """Pictures that are members of tar files, read by their place in them."""

    paths: Sequence[str]
    classes: tuple[str, ...]
    labels: Sequence[int]
    members: _Members
    # In one order with one another: how they are spread over the files is not known to be even.
    shard_sizes: Sequence[int] = ()

    def with_classes(self, classes: tuple[str, ...]) -> TarPictures:
        """Give the same pictures under these class names."""
        return replace(self, classes=classes)

    def name(self, index: int) -> str:
        """Give the shard's path and the member's name."""
        return f"{self.paths[self.members.shards[index]]}:{self.members.names[index]}"

    def file_range(self, index: int) -> FileRange:
        """Give the member's part of its shard."""
        members = self.members
        path = self.paths[members.shards[index]]
        return FileRange(path, members.offsets[index], members.sizes[index])

    def read(self, index: int) -> bytes:
        """Read the member's bytes from its shard."""
        return self.file_range(index).read(self.name(index))

    def announce(self, samples: Sequence[int]) -> None:
        """Do nothing: the system reads a disk ahead."""


class _Members:
    """Offsets and names of the pictures in the shards, column by column."""

    def __init__(self) -> None:
        self.shards = array("I")
        self.offsets = array("Q")
        self.sizes = array("Q")
        self.names = Texts()

    def append(self, shard: int, member: tarfile.TarInfo) -> None:
        self.shards.append(shard)
        self.offsets.append(member.offset_data)
        self.sizes.append(member.size)
        self.names.append(member.name)


def open_tars(folder: Path, shards: Sequence[str]) -> TarPictures:
    """Index the members of these tar files, of which only headers and labels are read.

    Raises TrainingError for what is no tar file or not all of one, for a picture without a label or the
    other way round, and for a picture that would not be taken by the name or the kind of its member.
    """
    close_shards()
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
    return TarPictures(paths=shards, classes=classes, labels=labels, members=members)


def _labelled(path: str) -> Iterator[tuple[tarfile.TarInfo, int]]:
    """Give the shard's pictures in its order, each with its label."""
    pictures: dict[str, tarfile.TarInfo] = {}
    labels: dict[str, int] = {}
    try:
        with tarfile.open(path, "r:") as shard:
            for member in _members(path, shard):
                name = PurePosixPath(member.name)
                key, suffix = _key(name)
                if name.suffix.lower() in SUFFIXES:
                    _require_picture(path, member, suffix)
                    if key in pictures:
                        raise _two_pictures(path, pictures[key], member)
                    pictures[key] = member
                elif member.isreg() and suffix == LABEL_SUFFIX:
                    labels[key] = _label(path, shard, member)
            _require_end(path, shard)
    except (OSError, ValueError, tarfile.TarError) as error:
        raise unreadable(path, str(error)) from None
    for key in (key for key in labels if key not in pictures):
        message = f"`{path}` has no picture for its label `{key}.{LABEL_SUFFIX}`"
        raise TrainingError(message, hint="a member of that name with the suffix jpg, jpeg or png")
    for key, member in pictures.items():
        if key not in labels:
            message = f"`{path}` has no label `{key}.{LABEL_SUFFIX}` for `{member.name}`"
            raise TrainingError(message, hint="a member of that name that holds a number from 0")
        yield member, labels[key]


def _members(path: str, shard: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Give what is no folder, and not hidden."""
    for member in shard:
        if member.size < 0:  # tarfile would go back by it, and read the same for ever
            raise unreadable(path, f"`{member.name}` has a size below 0")
        if not member.isdir() and not PurePosixPath(member.name).name.startswith("."):
            yield member


def _key(path: PurePosixPath) -> tuple[str, str]:
    """Give `a/b` and `jpg` for `a/b.jpg`; the suffix begins at the file name's first dot."""
    stem, _, suffix = path.name.partition(".")
    return str(path.with_name(stem)), suffix


def _require_picture(path: str, member: tarfile.TarInfo, suffix: str) -> None:
    """Raise TrainingError for a picture by its name that is none of the shard's pictures."""
    if f".{suffix.lower()}" not in SUFFIXES:
        why = f"its suffix, `.{suffix}`, begins at the first dot of its name, as WebDataset has it"
        hint = "name it without that dot, and its label as well"
    elif not member.isreg():
        why = "it is a link" if member.islnk() or member.issym() else "it is no file"
        hint = "pack files in place of links: tar --hard-dereference --dereference"
    else:
        return
    message = f"`{path}:{member.name}` cannot be used: {why}"
    raise TrainingError(message, hint=hint)


def _label(path: str, shard: tarfile.TarFile, member: tarfile.TarInfo) -> int:
    content = shard.extractfile(member)
    assert content is not None
    text = content.read(_MOST_LABEL_BYTES).strip()
    if not text.isdigit() or int(text) >= MOST_CLASSES:
        shown = text.decode(errors="backslashreplace")
        message = f"`{path}:{member.name}` holds {shown!r}, which is no label"
        raise TrainingError(message, hint=f"a number from 0 to {MOST_CLASSES - 1:,}")
    return int(text)


def _require_end(path: str, shard: tarfile.TarFile) -> None:
    """Raise TrainingError where the members end by anything but zeros up to the end of the file.

    `tarfile` takes a header that is damaged or cut off for the end, and all that follows is lost.
    """
    file, at = shard.fileobj, shard.offset
    assert file is not None
    file.seek(at)
    block = file.read(tarfile.BLOCKSIZE)
    if not block:
        message = f"`{path}` cannot be read: it ends at byte {at:,} without a tar's end"
        hint = "get the file again; if it is whole, `truncate -s +1024 FILE` adds the end"
        raise TrainingError(message, hint=hint)
    if block != bytes(tarfile.BLOCKSIZE):
        raise unreadable(path, f"it is damaged or cut off at byte {at:,}")
    while more := file.read(_READ_BYTES):
        if more.strip(b"\0"):
            message = f"`{path}` cannot be read: more follows after its end at byte {at:,}"
            raise TrainingError(message, hint="one tar archive a file, as `tar -cf` writes it")


def _two_pictures(path: str, one: tarfile.TarInfo, other: tarfile.TarInfo) -> TrainingError:
    message = f"`{path}` has two pictures of one key: `{one.name}`, `{other.name}`"
    return TrainingError(message, hint="a key, a name up to its first dot, has one picture")


def _class_names(path: Path, num_seen: int) -> tuple[str, ...]:
    try:
        # With or without a byte order mark, as some editors put before it.
        names = path.read_text(encoding="utf-8-sig").split("\n")
    except FileNotFoundError:
        return tuple(str(number) for number in range(num_seen))
    except OSError as error:
        raise unreadable(str(path), error.strerror) from None
    except UnicodeDecodeError:
        message = f"`{path}` cannot be read: it is not UTF-8 text"
        raise TrainingError(message, hint="save it with that encoding") from None
    while names and not names[-1].strip():
        names.pop()
    if len(names) < num_seen:
        message = f"`{path}` names {len(names)} classes, but there is a label {num_seen - 1}"
        raise TrainingError(message, hint="one name a line, in the order of labels")
    return tuple(names)
