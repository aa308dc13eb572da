"""A file that is being received: under another name, beside its own, until its content is right.

What of a large file has arrived is noted in a journal, so that a later try asks for the rest only.
The file is locked: two processes that receive the same content do not write into one file.
"""

from __future__ import annotations

import hashlib
import os
import sys
from contextlib import suppress
from pathlib import Path

from jobs.blobs.files import BLOCK_BYTES, Incoming
from jobs.blobs.portable import OPEN_FLAGS, hint_for, read_at, write_at
from jobs.contracts.errors import EnvironmentFailure
from jobs.host.private import try_lock

PREFIX = ".trainyard-"
_LONGEST_JOURNAL = 16 << 20


class PartialFile:
    """Written by range; gets its name in `finish`. Raises EnvironmentFailure for disk errors."""

    def __init__(self, file: Incoming, *, is_resumable: bool) -> None:
        self._file = file
        self._is_resumable = is_resumable
        self._descriptors: list[int] = []
        # Made of what it will be: what another content left here is never taken for it.
        key = hashlib.sha256(f"{file.sha256 or file.etag} {file.path.name}".encode()).hexdigest()[
            :20
        ]
        self._stem = f"{file.path.parent}/{PREFIX}{key}"
        try:
            self._descriptor = self._open_locked()
            self._journal = self._open_journal() if is_resumable else -1
            if not is_resumable and os.fstat(self._descriptor).st_size:
                os.ftruncate(self._descriptor, 0)
        except OSError as error:
            self.close()
            raise self._failure(error) from None

    def _open_locked(self) -> int:
        while True:
            part = f"{self._stem}.part"
            try:
                descriptor = _open(part)
            except PermissionError:
                if not os.path.lexists(part):
                    raise  # it is the folder that may not be written
                # Killed between getting its mode, which may be read-only, and its name.
                os.unlink(part)  # noqa: PTH108
                continue
            if not try_lock(descriptor, without_locks=True):
                os.close(descriptor)
                self._stem += f"-{os.getpid()}"
                continue
            # Whoever had the lock before may have given the file its name, or taken it away.
            with suppress(FileNotFoundError):
                if os.path.samestat(Path(part).stat(), os.fstat(descriptor)):
                    self._descriptors.append(descriptor)
                    return descriptor
            os.close(descriptor)

    def _open_journal(self) -> int:
        journal = _open(f"{self._stem}.ranges", os.O_APPEND)
        self._descriptors.append(journal)
        if not os.fstat(self._descriptor).st_size:
            os.ftruncate(journal, 0)
        else:
            # What is noted next must not go on where a line was cut short.
            os.ftruncate(journal, read_at(journal, _LONGEST_JOURNAL, 0).rfind(b"\n") + 1)
        return journal

    def finished_blocks(self) -> set[int]:
        """List the blocks that an earlier try has written."""
        size = os.fstat(self._descriptor).st_size
        # A line that a kill cut short lacks its end, and counts for nothing.
        lines = set(read_at(self._journal, _LONGEST_JOURNAL, 0).split(b"\n")[:-1])
        num_blocks = -(-self._file.bytes // BLOCK_BYTES)
        return {
            each
            for each in range(num_blocks)
            if b"%d" % each in lines and min((each + 1) * BLOCK_BYTES, self._file.bytes) <= size
        }

    def note(self, block: int) -> None:
        """Remember that a block is written."""
        try:
            os.write(self._journal, b"%d\n" % block)
        except OSError as error:
            raise self._failure(error) from None

    def forget(self) -> None:
        """Forget what the journal says was written."""
        os.ftruncate(self._journal, 0)

    def write(self, chunk: memoryview, offset: int) -> None:
        """Write a piece, all of it."""
        try:
            written = write_at(self._descriptor, chunk, offset)
            while written < len(chunk):
                written += write_at(self._descriptor, chunk[written:], offset + written)
        except OSError as error:
            raise self._failure(error) from None

    def read(self, length: int, offset: int) -> bytes:
        """Read a piece that was written."""
        try:
            return read_at(self._descriptor, length, offset)
        except OSError as error:
            raise self._failure(error) from None

    def finish(self) -> None:
        """Give the file its mode and name."""
        part = f"{self._stem}.part"
        try:
            os.chmod(part, self._file.mode)  # noqa: PTH101 (thousands a second)
            if sys.platform == "win32":
                self.close()  # an open file has its name for good there
            if self._is_resumable:
                # First: a kill in between must not leave it beside the file for good.
                with suppress(FileNotFoundError):
                    os.unlink(f"{self._stem}.ranges")  # noqa: PTH108
            os.replace(part, self._file.path)  # noqa: PTH105
        except OSError as error:
            raise self._failure(error) from None
        self.close()

    def discard(self) -> None:
        """Remove the file: a small one is received whole by a later try, another version not at all."""
        if sys.platform == "win32":
            self.close()
        with suppress(OSError):
            os.unlink(f"{self._stem}.part")  # noqa: PTH108
            if self._is_resumable:
                os.unlink(f"{self._stem}.ranges")  # noqa: PTH108
        self.close()

    def close(self) -> None:
        """Leave it as it is; not while another may still want its lock."""
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()

    def _failure(self, error: OSError) -> EnvironmentFailure:
        message = f"`{self._file.path}` cannot be written: {error.strerror}"
        hint = hint_for(error, "check the permissions and the free space there")
        return EnvironmentFailure(message, hint=hint)


def sweep(folder: Path) -> None:
    """Remove partial files of killed pulls from a folder, unless they are locked."""
    with suppress(OSError), os.scandir(folder) as entries:
        left = {each.path for each in entries if each.name.startswith(PREFIX)}
        for path in left:
            stem, _, kind = path.rpartition(".")
            if kind == "part":
                _remove_abandoned(stem)
            elif kind == "ranges" and f"{stem}.part" not in left:
                os.unlink(path)  # noqa: PTH108


def _remove_abandoned(stem: str) -> None:
    with suppress(OSError):
        descriptor = os.open(f"{stem}.part", os.O_RDONLY | OPEN_FLAGS)
        try:
            if try_lock(descriptor, without_locks=False):
                with suppress(FileNotFoundError):
                    os.unlink(f"{stem}.ranges")  # noqa: PTH108
                if os.path.samestat(Path(f"{stem}.part").stat(), os.fstat(descriptor)):
                    os.unlink(f"{stem}.part")  # noqa: PTH108
        finally:
            os.close(descriptor)


def _open(path: str, flags: int = 0) -> int:
    # Through a link it could be a file outside the folder.
    return os.open(path, flags | os.O_RDWR | os.O_CREAT | OPEN_FLAGS, 0o600)
