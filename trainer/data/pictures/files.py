"""Reads pictures' bytes from files and from parts of files; names those that cannot be read."""

from __future__ import annotations

import os
import threading
from typing import NamedTuple

from trainer.common.errors import TrainingError

SUFFIXES = frozenset({".jpg", ".jpeg", ".png"})
# Far below the 1,024 files that a process may have open on most systems.
MAX_OPEN = 64


def read_file(path: str) -> bytes:
    """Read a whole file; raises TrainingError where that fails."""
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - half of Path.read_bytes
            return file.readall()
    except OSError as error:
        raise unreadable(path, error.strerror) from None


def unreadable(name: str, why: str | None) -> TrainingError:
    """Give the error for a file or a part of one that cannot be read."""
    return TrainingError(f"`{name}` cannot be read: {why}", hint="get the file again")


class FileRange(NamedTuple):
    """Place of an encoded picture: a file, or `length` bytes of a large one."""

    path: str
    offset: int = 0
    length: int | None = None

    def read(self, name: str) -> bytes:
        """Read it; raises TrainingError, with this name for it, where it is not there."""
        if self.length is None:
            return read_file(self.path)
        try:
            # Held until it was read from: another thread may open one too many.
            file = _opened(self.path)
            data = os.pread(file.number, self.length, self.offset)
        except OSError as error:
            raise unreadable(name, error.strerror) from None
        if len(data) != self.length:
            raise unreadable(name, "the shard ends before it")
        return data


_open: dict[str, _Open] = {}
_opening = threading.Lock()


def close_shards() -> None:
    """Close what stays open in this process: a data set that is opened anew may have other files of these names."""
    with _opening:
        _open.clear()


def _opened(path: str) -> _Open:
    """Open a shard; the last ones used stay open, for all threads."""
    with _opening:
        file = _open.pop(path, None)
        if file is None:
            file = _Open(path)
            while len(_open) >= MAX_OPEN:
                # It closes when the last thread that reads it lets go.
                del _open[next(iter(_open))]
        _open[path] = file
    return file


class _Open:
    """An open file's number; closed with its last reference, while others may still read it."""

    def __init__(self, path: str) -> None:
        self.number = -1
        self.number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self.number >= 0:
            os.close(self.number)
