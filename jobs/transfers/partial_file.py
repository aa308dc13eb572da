"""A file that is being received: under another name, beside its own, until its content is right.

What of a large file has arrived is noted in a journal, so that a later try asks for the rest only.
The file is locked: two processes that receive the same content do not write into one file.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from contextlib import suppress
from pathlib import Path

from jobs.errors import EnvironmentFailure
from jobs.transfers.files import BLOCK_BYTES, Incoming

PREFIX = ".trainyard-"
_LONGEST_JOURNAL = 16 << 20


class PartialFile:
    """Written by range; gets its name in `finish`. Raises EnvironmentFailure for disk errors."""

    def __init__(self, file: Incoming, *, is_resumable: bool) -> None:
        self._file = file
        self._journal = -1
        # Made of what it will be: what another content left here is never taken for it.
        key = hashlib.sha256(f"{file.sha256} {file.path.name}".encode()).hexdigest()[:20]
        self._stem = f"{file.path.parent}/{PREFIX}{key}"
        try:
            self._descriptor = self._open_locked()
            self._open_journal(is_resumable)
        except OSError as error:
            raise self._failure(error) from None

    def _open_locked(self) -> int:
        while True:
            descriptor = _open(f"{self._stem}.part")
            if not _is_lockable(descriptor):
                os.close(descriptor)
                self._stem += f"-{os.getpid()}"
                continue
            # Whoever had the lock before may have given the file its name, or taken it away.
            with suppress(FileNotFoundError):
                if os.path.samestat(Path(f"{self._stem}.part").stat(), os.fstat(descriptor)):
                    return descriptor
            os.close(descriptor)

    def _open_journal(self, is_resumable: bool) -> None:
        size = os.fstat(self._descriptor).st_size
        if is_resumable:
            self._journal = _open(f"{self._stem}.ranges", os.O_APPEND)
            if not size:
                os.ftruncate(self._journal, 0)
        elif size:
            os.ftruncate(self._descriptor, 0)

    def finished_blocks(self) -> set[int]:
        """Which blocks an earlier try has written."""
        size = os.fstat(self._descriptor).st_size
        # A line that a kill cut short lacks its end, and counts for nothing.
        lines = os.pread(self._journal, _LONGEST_JOURNAL, 0).split(b"\n")[:-1]
        numbers = {int(line) for line in lines if line.isdigit()}
        return {each for each in numbers if min((each + 1) * BLOCK_BYTES, self._file.bytes) <= size}

    def note(self, block: int) -> None:
        """Remember that a block is written."""
        try:
            os.write(self._journal, b"%d\n" % block)
        except OSError as error:
            raise self._failure(error) from None

    def forget(self) -> None:
        """Begin again."""
        os.ftruncate(self._journal, 0)

    def write(self, chunk: memoryview, offset: int) -> None:
        """Write a piece, all of it."""
        try:
            written = os.pwrite(self._descriptor, chunk, offset)
            while written < len(chunk):
                written += os.pwrite(self._descriptor, chunk[written:], offset + written)
        except OSError as error:
            raise self._failure(error) from None

    def read(self, length: int, offset: int) -> bytes:
        """Read a piece that was written."""
        try:
            return os.pread(self._descriptor, length, offset)
        except OSError as error:
            raise self._failure(error) from None

    def finish(self) -> None:
        """Give the file its mode and name."""
        try:
            os.fchmod(self._descriptor, self._file.mode)
            os.replace(f"{self._stem}.part", self._file.path)  # noqa: PTH105 (10,000 a second)
        except OSError as error:
            raise self._failure(error) from None
        if self._journal >= 0:
            os.unlink(f"{self._stem}.ranges")  # noqa: PTH108
        self.close()

    def discard(self) -> None:
        """Take it away; for a small file, which a later try receives whole."""
        with suppress(OSError):
            os.unlink(f"{self._stem}.part")  # noqa: PTH108
        self.close()

    def close(self) -> None:
        """Leave it as it is."""
        os.close(self._descriptor)
        if self._journal >= 0:
            os.close(self._journal)

    def _failure(self, error: OSError) -> EnvironmentFailure:
        message = f"`{self._file.path}` cannot be written: {error.strerror}"
        return EnvironmentFailure(message, hint="see who may write there, and what is free")


def _open(path: str, flags: int = 0) -> int:
    # No link is followed: it could lead out of the folder.
    flags |= os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(path, flags, 0o600)


def _is_lockable(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # a network mount may have no locks
    return True
