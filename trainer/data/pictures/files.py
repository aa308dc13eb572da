"""Reads pictures' bytes from files and from parts of files; names those that cannot be read."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence

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


class ShardFiles:
    """Parts of some large files, for any number of threads; the last ones used stay open.

    Picklable: the open files are left behind.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = paths
        self._open: dict[int, _Open] = {}
        self._lock = threading.Lock()

    def read(self, shard: int, offset: int, length: int, name: Callable[[], str]) -> bytes:
        """Read a part of a file; raises TrainingError, with this name for it, where it is not there."""
        try:
            # Held until it was read from: another thread may open one too many.
            file = self._file(shard)
            data = os.pread(file.number, length, offset)
        except OSError as error:
            raise unreadable(name(), error.strerror) from None
        if len(data) != length:
            raise unreadable(name(), "the shard ends before it")
        return data

    def _file(self, shard: int) -> _Open:
        with self._lock:
            file = self._open.pop(shard, None)
            if file is None:
                file = _Open(self.paths[shard])
                while len(self._open) >= MAX_OPEN:
                    # It closes when the last thread that reads it lets go.
                    del self._open[next(iter(self._open))]
            self._open[shard] = file
        return file

    def __getstate__(self) -> Sequence[str]:
        return self.paths

    def __setstate__(self, paths: Sequence[str]) -> None:
        self.__init__(paths)


class _Open:
    """An open file's number; closed with its last reference, while others may still read it."""

    def __init__(self, path: str) -> None:
        self.number = -1
        self.number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self.number >= 0:
            os.close(self.number)
