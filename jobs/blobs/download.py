"""Receives files: small ones in one request, large ones in ranges that a later try need not repeat.

A file gets its name only after its content was found correct.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from azure.core import MatchConditions

from jobs.blobs.concurrency import Bandwidth, Job, Room, run_all
from jobs.blobs.files import BLOCK_BYTES, Incoming, Tally
from jobs.blobs.partial_file import PartialFile, sweep
from jobs.blobs.refusals import StoreError
from jobs.blobs.session import Session
from jobs.contracts.errors import EnvironmentFailure

# The longest range for which the store gives an MD5.
CHECKED_BYTES = 4 << 20
_CHUNK = 1 << 20
# What is asked for at once where bandwidth is capped.
_CAPPED_BYTES = 1 << 20
# What the SDK says of a range that has not the MD5 it came with.
_MISMATCH = "MD5 mismatch"
# What is answered where a version is asked for that has gone.
_OTHER_VERSION = ("BlobNotFound", "InvalidRange", "ConditionNotMet")
_MEND = "of a dataset, `launch data rm NAME@N`, then push it again"
# A content that arrives damaged is received so often in all.
_TRIES = 3


async def receive(
    session: Session,
    files: Iterable[Incoming],
    tally: Tally,
    max_bytes_per_s: int | None,
    arrived: Callable[[Incoming], None],
) -> None:
    """Receive all files; see BlobStore.receive."""
    download = Download(session, files, tally, max_bytes_per_s, arrived)
    try:
        await run_all(download, tally.tell)
        for folder in download.folders:
            sweep(folder)
    finally:
        download.close()


def conditions_of(etag: str | None) -> dict[str, Any]:
    """Give the arguments of a read that wants this version of a blob."""
    if not etag:
        return {}
    quoted = etag if etag.startswith('"') else f'"{etag}"'
    return {"etag": quoted, "match_condition": MatchConditions.IfNotModified}


class _Gone(Exception):
    """The version that was asked for is not in the store any more."""


class _Large:
    """A file that comes in ranges, while it does."""

    def __init__(self, file: Incoming, part: PartialFile) -> None:
        self.file = file
        self.part = part
        self.num_blocks = -(-file.bytes // BLOCK_BYTES)
        self.done: set[int] = set()
        self.missing: deque[int] = deque()
        self.num_tries = 0
        # Of the blocks from the first on that are there without a gap.
        self.digest = file.new_digest()
        self.num_hashed = 0
        self.is_hashing = False
        self.is_gone = False

    def begin(self, done: set[int]) -> None:
        self.done = done
        self.missing = deque(each for each in range(self.num_blocks) if each not in done)
        self.digest, self.num_hashed = self.file.new_digest(), 0
        self.num_tries += 1

    def length_of(self, block: int) -> int:
        return min(BLOCK_BYTES, self.file.bytes - block * BLOCK_BYTES)


class Download:
    """The jobs of one `receive`; takes the next file only when a request is free for it."""

    def __init__(
        self,
        session: Session,
        files: Iterable[Incoming],
        tally: Tally,
        max_bytes_per_s: int | None,
        arrived: Callable[[Incoming], None],
    ) -> None:
        self._session = session
        self._files: Iterator[Incoming] = iter(files)
        self._tally = tally
        self._arrived = arrived
        self._bandwidth = Bandwidth(max_bytes_per_s)
        self._room = Room()
        self._large: deque[_Large] = deque()
        self._open: set[_Large] = set()
        self.folders: set[Path] = set()

    def next_job(self) -> Job | None:
        """Return the next request: ranges of begun files come before new files."""
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

    def close(self) -> None:
        """Close the large files that are not whole; they are kept for a later try.

        What is left of a version that has gone serves no other one.
        """
        for large in self._open:
            if large.is_gone:
                large.part.discard()
            else:
                large.part.close()

    def _finish(self, file: Incoming, part: PartialFile, num_bytes: int) -> None:
        part.finish()
        self._tally.add(1, num_bytes)
        self._arrived(file)

    def _make_folder(self, folder: Path) -> None:
        if folder in self.folders:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"`{folder}` cannot be written: {error.strerror}"
            raise EnvironmentFailure(
                message, hint="check the permissions and the free space there"
            ) from None
        self.folders.add(folder)

    # --- Small files ------------------------------------------------------------------------------

    async def _get(self, file: Incoming) -> None:
        """Receive a small file in one request."""
        part = PartialFile(file, is_resumable=False)
        try:
            if file.bytes > _CHUNK:
                await self._room.hold(file.bytes, lambda: self._try(file, part))
            else:
                await self._try(file, part)
            self._finish(file, part, file.bytes)
        except _Gone:
            part.discard()
        except BaseException:
            part.discard()
            raise

    async def _try(self, file: Incoming, part: PartialFile) -> None:
        how = ""
        for _ in range(_TRIES):
            # A byte more, where there is one, tells that the blob is longer.
            content = await self._read(file, 0, file.bytes + 1 if file.bytes else None)
            digest = file.new_digest()
            digest.update(content)
            if len(content) != file.bytes:
                how = f"an answer of {len(content)} bytes, not of {file.bytes}"
            elif not (how := file.fault(digest)):
                part.write(memoryview(content), 0)
                return
        raise _another(file, how)

    # --- Large files ------------------------------------------------------------------------------

    async def _begin(self, file: Incoming) -> None:
        """Open a large file; find the ranges that an earlier try received."""
        large = _Large(file, PartialFile(file, is_resumable=True))
        self._open.add(large)
        large.begin(large.part.finished_blocks())
        self._tally.find(sum(map(large.length_of, large.done)))
        if large.missing:
            self._large.append(large)
        await self._check(large)

    async def _fetch(self, large: _Large, block: int) -> None:
        """Receive one block; what goes on from there may end the file."""
        start, length = block * BLOCK_BYTES, large.length_of(block)
        # Where something was damaged on the way, the MD5 of each range finds it where it is.
        is_checked = large.num_tries > 1
        size = BLOCK_BYTES
        if is_checked or self._bandwidth.is_capped:
            size = CHECKED_BYTES if is_checked else _CAPPED_BYTES
        for at in range(start, start + length, size):
            piece = min(size, start + length - at)
            get = partial(self._range, large, at, piece, is_checked=is_checked)
            try:
                await self._room.hold(piece, get)
            except _Gone:
                # Others of its ranges may be under way: it stays open until all is over.
                large.is_gone = True
                large.missing.clear()
                return
        large.part.note(block)
        large.done.add(block)
        if large.num_tries == 1:
            self._tally.add(0, length)
        await self._check(large)

    async def _range(self, large: _Large, start: int, length: int, *, is_checked: bool) -> None:
        """Receive a range; `is_checked` compares its MD5 with the store's."""
        how = ""
        for _ in range(_TRIES):
            try:
                content = await self._read(large.file, start, length, is_checked=is_checked)
            except StoreError as error:
                if not is_checked or not error.text.startswith(_MISMATCH):
                    raise
                how = error.text
                continue
            if len(content) == length:
                large.part.write(memoryview(content), start)
                return
            how = f"an answer of {len(content)} bytes, not of {length}"
        raise _another(large.file, how)

    async def _check(self, large: _Large) -> None:
        """Hash the received bytes up to the first gap; at the end compare, then finish or begin again."""
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
            await asyncio.sleep(0)
        large.is_hashing = False
        if large.num_hashed < large.num_blocks:
            return
        how = large.file.fault(large.digest)
        if not how:
            self._open.discard(large)
            self._finish(large.file, large.part, 0)
            return
        large.part.forget()
        if large.num_tries == _TRIES:
            raise _another(large.file, how)
        large.begin(set())
        self._large.append(large)

    async def _read(
        self, file: Incoming, start: int, length: int | None, *, is_checked: bool = False
    ) -> bytes:
        await self._bandwidth.take(length or 0)

        async def read() -> bytes:
            found = await self._session.any_blob.download_blob(
                offset=start if length else None,
                length=length,
                max_concurrency=1,
                validate_content=is_checked,
                **conditions_of(file.etag),
                **self._session.at(file.name),
            )
            return await found.readall()

        try:
            return await self._session.ask(read, accept=_OTHER_VERSION)
        except StoreError as error:
            if file.etag and error.code in _OTHER_VERSION:
                raise _Gone from None
            if error.code == "InvalidRange":
                raise _another(file, f"it ends before byte {file.bytes}") from None
            if error.code != "BlobNotFound":
                raise
            message = f"the store has no `{file.name}`, which belongs to what is received"
            raise EnvironmentFailure(message, hint=_MEND) from None


def _another(file: Incoming, how: str) -> EnvironmentFailure:
    name = file.path.name
    if not file.sha256:
        message = f"`{name}` arrived damaged from the store: {how}"
        return EnvironmentFailure(message, hint="type the same again")
    message = f"`{name}` came from the store with another content than was pushed: {how}"
    hint = f"pull again; where that fails, too: {_MEND}"
    return EnvironmentFailure(message, hint=hint)
