"""Receives files: small ones in one request, large ones in ranges that a later try need not repeat.

No file has its name before its SHA-256 is what was asked for.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from jobs.blobs.transfers.connection import Answer, Connection, Sink, Steps, WrongLength
from jobs.blobs.transfers.container import Container, StoreError
from jobs.blobs.transfers.crew import Job
from jobs.blobs.transfers.files import BLOCK_BYTES, Incoming, Tally
from jobs.blobs.transfers.pace import Pace
from jobs.blobs.transfers.partial_file import PartialFile, sweep
from jobs.contracts.errors import EnvironmentFailure

# The longest range for which the store gives an MD5.
CHECKED_BYTES = 4 << 20
_CHUNK = 1 << 20
# A content that arrives damaged is received so often in all.
_TRIES = 3


class _Large:
    """A file that comes in ranges, while it does."""

    def __init__(self, file: Incoming, part: PartialFile) -> None:
        self.file = file
        self.part = part
        self.num_blocks = -(-file.bytes // BLOCK_BYTES)
        self.done: set[int] = set()
        self.missing: deque[int] = deque()
        self.num_tries = 0
        # The SHA-256 of the blocks from the first on that are there without a gap.
        self.digest = hashlib.sha256()
        self.num_hashed = 0
        self.is_hashing = False

    def begin(self, done: set[int]) -> None:
        self.done = done
        self.missing = deque(each for each in range(self.num_blocks) if each not in done)
        self.digest, self.num_hashed = hashlib.sha256(), 0
        self.num_tries += 1

    def length_of(self, block: int) -> int:
        return min(BLOCK_BYTES, self.file.bytes - block * BLOCK_BYTES)


class Download:
    """The jobs of one `receive`; takes the next file only when a connection is free for it."""

    def __init__(
        self, container: Container, files: Iterable[Incoming], tally: Tally, pace: Pace
    ) -> None:
        self._container = container
        self._files: Iterator[Incoming] = iter(files)
        self._tally = tally
        self._pace = pace
        self._large: deque[_Large] = deque()
        self._open: set[_Large] = set()
        self._folders: set[Path] = set()

    def next_job(self) -> Job | None:
        """See Jobs: ranges of files that were begun come before new files."""
        while self._large:
            large = self._large[0]
            if large.missing:
                return partial(self._fetch, large, large.missing.popleft())
            self._large.popleft()
        file = next(self._files, None)
        if file is None:
            return None
        self._make_folder(file.path.parent)
        return partial(self._begin if file.bytes > BLOCK_BYTES else self._get, file)

    def sweep(self) -> None:
        """Take away what other tries left, of other contents, in the folders that were written."""
        for folder in self._folders:
            sweep(folder)

    def close(self) -> None:
        """Close the large files that are not whole; they are kept for a later try."""
        for large in self._open:
            large.part.close()
        self._open.clear()

    def _make_folder(self, folder: Path) -> None:
        if folder in self._folders:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"`{folder}` cannot be written: {error.strerror}"
            raise EnvironmentFailure(
                message, hint="see who may write there, and what is free"
            ) from None
        self._folders.add(folder)

    # --- Small files ------------------------------------------------------------------------------

    def _get(self, file: Incoming, connection: Connection) -> Steps[None]:
        """Receive a small file in one request."""
        part = PartialFile(file, is_resumable=False)
        try:
            digest = ""
            for _ in range(_TRIES):
                digest = yield from self._get_once(file, part, connection)
                if digest == file.sha256:
                    break
            else:
                raise _another(file, f"its SHA-256 is {digest}")
            part.finish()
        except BaseException:
            part.discard()
            raise
        self._tally.add(1, file.bytes)

    def _get_once(self, file: Incoming, part: PartialFile, connection: Connection) -> Steps[str]:
        digest, at = hashlib.sha256(), 0

        def begin() -> Sink:
            nonlocal digest, at
            digest, at = hashlib.sha256(), 0
            return take

        def take(chunk: memoryview) -> None:
            nonlocal at
            part.write(chunk, at)
            digest.update(chunk)
            at += len(chunk)

        yield from self._ask(file, connection, begin, file.bytes)
        return digest.hexdigest()

    # --- Large files ------------------------------------------------------------------------------

    def _begin(self, file: Incoming, _connection: Connection) -> Steps[None]:
        """Open a large file, and see what of it an earlier try has received."""
        large = _Large(file, PartialFile(file, is_resumable=True))
        self._open.add(large)
        large.begin(large.part.finished_blocks())
        self._tally.find(sum(map(large.length_of, large.done)))
        if large.missing:
            self._large.append(large)
        yield from self._check(large)

    def _fetch(self, large: _Large, block: int, connection: Connection) -> Steps[None]:
        """Receive one block; what goes on from there may end the file."""
        start, length = block * BLOCK_BYTES, large.length_of(block)
        if large.num_tries == 1:
            yield from self._range(large, start, length, connection)
        else:
            # Something was damaged on the way; with the MD5 of each range it is found where it is.
            for at in range(start, start + length, CHECKED_BYTES):
                piece = min(CHECKED_BYTES, start + length - at)
                yield from self._checked_range(large, at, piece, connection)
        large.part.note(block)
        large.done.add(block)
        if large.num_tries == 1:
            self._tally.add(0, length)
        yield from self._check(large)

    def _checked_range(
        self, large: _Large, start: int, length: int, connection: Connection
    ) -> Steps[None]:
        for _ in range(_TRIES):
            said = yield from self._range(large, start, length, connection, wants_md5=True)
            digest = hashlib.md5(large.part.read(length, start), usedforsecurity=False).digest()
            if said in (None, b64encode(digest).decode("ascii")):
                return
        raise _another(large.file, f"bytes {start} to {start + length} have not the MD5 it says")

    def _range(
        self,
        large: _Large,
        start: int,
        length: int,
        connection: Connection,
        *,
        wants_md5: bool = False,
    ) -> Steps[str | None]:
        """Receive a range; gives the MD5 that the store says it has."""
        at, end = start, start + length

        def begin() -> Sink:
            nonlocal at
            at = start
            return take

        def take(chunk: memoryview) -> None:
            nonlocal at
            if at + len(chunk) > end:
                message = "an answer longer than its range"
                raise ValueError(message)
            large.part.write(chunk, at)
            at += len(chunk)

        headers = {"x-ms-range": f"bytes={start}-{end - 1}"}
        if wants_md5:
            headers["x-ms-range-get-content-md5"] = "true"
        answer = yield from self._ask(large.file, connection, begin, length, headers)
        return answer.header("content-md5")

    def _check(self, large: _Large) -> Steps[None]:
        """Hash what is there without a gap; at the end compare, and finish or begin again."""
        if large.is_hashing:
            return
        large.is_hashing = True
        while large.num_hashed in large.done:
            block = large.num_hashed
            start, end = block * BLOCK_BYTES, block * BLOCK_BYTES + large.length_of(block)
            for at in range(start, end, _CHUNK):
                large.digest.update(large.part.read(min(_CHUNK, end - at), at))
            large.num_hashed += 1
            # The others' bytes must not wait for all that an earlier try has left.
            yield 0.0
        large.is_hashing = False
        if large.num_hashed < large.num_blocks:
            return
        if large.digest.hexdigest() == large.file.sha256:
            large.part.finish()
            self._open.discard(large)
            self._tally.add(1, 0)
            return
        large.part.forget()
        if large.num_tries == _TRIES:
            raise _another(large.file, f"its SHA-256 is {large.digest.hexdigest()}")
        large.begin(set())
        self._large.append(large)

    def _ask(
        self,
        file: Incoming,
        connection: Connection,
        sink: Callable[[], Sink],
        expected: int,
        headers: Mapping[str, str] | None = None,
    ) -> Steps[Answer]:
        try:
            return (
                yield from self._container.request(
                    connection,
                    "GET",
                    file.name,
                    headers=headers,
                    sink=sink,
                    expected=expected,
                    pace=self._pace,
                )
            )
        except WrongLength as error:
            raise _another(file, str(error)) from None
        except StoreError as error:
            if error.code == "InvalidRange":
                raise _another(file, f"it ends before byte {file.bytes}") from None
            if error.code != "BlobNotFound":
                raise
            message = f"the store has no `{file.name}`, which belongs to what is received"
            raise EnvironmentFailure(message, hint="push it again") from None


def _another(file: Incoming, how: str) -> EnvironmentFailure:
    name = file.path.name
    message = f"`{name}` came from the store with another content than was pushed: {how}"
    return EnvironmentFailure(message, hint="pull again; push it again where that fails, too")
