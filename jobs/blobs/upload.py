"""Sends files: small ones in one request, large ones in blocks that a later try need not repeat.

A block's id says which content it has, so what a killed upload left uncommitted is found and used.
Nothing has its blob's name before all of it is there and the store has checked every MD5.
"""

from __future__ import annotations

import hashlib
import os
from base64 import b64encode
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from functools import partial

from azure.storage.blob import BlobBlock, ContentSettings

from jobs.blobs.concurrency import Bandwidth, Job, run_all
from jobs.blobs.files import BLOCK_BYTES, Outgoing, Tally
from jobs.blobs.portable import hint_for, read_at
from jobs.blobs.refusals import StoreError
from jobs.blobs.session import Session, count_progress
from jobs.contracts.errors import EnvironmentFailure, LaunchError

MOST_BLOCKS = 50_000
# Larger files go in blocks, whose bodies are read as they are sent.
WHOLE_BYTES = 1 << 20
_CHUNK, _CAPPED_CHUNK = 256 << 10, 32 << 10
# A store that lost blocks it had acknowledged gets them again so often.
_COMMIT_TRIES = 4
_WHO_MAY_READ = "check who may read it, then push again"
# What a store answers where the content and its MD5 differ; the second is what Azurite says.
_DAMAGED = ("Md5Mismatch", "InvalidOperation")


async def send(
    session: Session,
    files: Iterable[Outgoing],
    tally: Tally,
    max_bytes_per_s: int | None,
) -> None:
    """Send all files; see BlobStore.send."""
    upload = Upload(session, files, tally, max_bytes_per_s)
    try:
        await run_all(upload, tally.tell)
    finally:
        upload.close()


class _Changed(Exception):
    """The file became shorter while it was being sent."""


class _Unreadable(Exception):
    """The file being sent cannot be read."""


class _Body:
    """A piece of an open file as a request's body, read again for each try."""

    def __init__(self, descriptor: int, offset: int, length: int, bandwidth: Bandwidth) -> None:
        self._descriptor = descriptor
        self._offset = offset
        self._length = length
        self._bandwidth = bandwidth
        # Why it could not be read to its end: another try would not help (session.py).
        self.failure: Exception | None = None

    def whole(self) -> bytes:
        """Read it at once."""
        return b"".join(self._pieces(max(1, self._length)))

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Read it as the connection takes it."""
        try:
            for chunk in self._pieces(_CAPPED_CHUNK if self._bandwidth.is_capped else _CHUNK):
                await self._bandwidth.take(len(chunk))
                count_progress()
                yield chunk
        except (_Changed, _Unreadable) as error:
            self.failure = error
            raise

    def md5(self) -> bytes:
        """Hash the file's present content."""
        digest = hashlib.md5(usedforsecurity=False)
        for chunk in self._pieces(1 << 20):
            digest.update(chunk)
        return digest.digest()

    def _pieces(self, size: int) -> Iterator[bytes]:
        at, end = self._offset, self._offset + self._length
        while at < end:
            try:
                chunk = read_at(self._descriptor, min(size, end - at), at)
            except OSError as error:
                raise _Unreadable(error.strerror) from error
            if not chunk:
                raise _Changed
            at += len(chunk)
            yield chunk


class _Large:
    """A file that goes in blocks, while it does."""

    def __init__(self, file: Outgoing, descriptor: int) -> None:
        self.file = file
        self.descriptor = descriptor
        self.md5s = file.block_md5s or (file.md5,)
        self.ids = [_block_id(index, md5) for index, md5 in enumerate(self.md5s)]
        self.missing: deque[int] = deque()
        self.num_left = 0
        self.num_commits = 0

    def length_of(self, index: int) -> int:
        return min(BLOCK_BYTES, self.file.bytes - index * BLOCK_BYTES)


class Upload:
    """The jobs of one `send`; takes the next file only when a request is free for it."""

    def __init__(
        self,
        session: Session,
        files: Iterable[Outgoing],
        tally: Tally,
        max_bytes_per_s: int | None,
    ) -> None:
        self._session = session
        self._files: Iterator[Outgoing] = iter(files)
        self._tally = tally
        self._bandwidth = Bandwidth(max_bytes_per_s)
        self._large: deque[_Large] = deque()
        self._open: set[int] = set()

    def next_job(self) -> Job | None:
        """Return the next request: blocks of begun files come before new files."""
        while self._large:
            large = self._large[0]
            if large.missing:
                return partial(self._stage, large, large.missing.popleft())
            self._large.popleft()
        file = next(self._files, None)
        if file is None:
            return None
        return partial(self._begin if file.bytes > WHOLE_BYTES else self._put, file)

    def close(self) -> None:
        """Close the files that are still open."""
        for descriptor in self._open:
            os.close(descriptor)
        self._open.clear()

    async def _put(self, file: Outgoing) -> None:
        """Send a small file in one request."""
        await self._bandwidth.take(file.bytes)
        descriptor = _open(file)
        try:
            body = _Body(descriptor, 0, file.bytes, self._bandwidth)

            def put() -> Awaitable[object]:
                return self._session.any_blob.upload_blob(
                    body.whole(),
                    length=file.bytes,
                    overwrite=True,
                    headers={"Content-MD5": _base64(file.md5)},
                    **self._session.at(file.name),
                )

            await self._write(file, body, file.md5, put)
        finally:
            os.close(descriptor)
        self._tally.add(1, file.bytes)

    async def _begin(self, file: Outgoing) -> None:
        """Ask which blocks of a large file the store has from an earlier try."""
        if len(file.block_md5s) > MOST_BLOCKS:
            message = f"`{file.path}` is larger than a blob can be: {MOST_BLOCKS} blocks"
            raise LaunchError(message, hint="launch data pack makes shards of a folder")
        descriptor = _open(file)
        self._open.add(descriptor)
        large = _Large(file, descriptor)
        assert len(large.md5s) == -(-file.bytes // BLOCK_BYTES)
        await self._plan(large)
        self._tally.find(file.bytes - sum(map(large.length_of, large.missing)))
        if not large.num_left:
            await self._commit(large)

    async def _plan(self, large: _Large) -> None:
        client = self._session.client.get_blob_client(large.file.name)
        there: set[str] = set()
        try:
            _, uncommitted = await self._session.ask(
                lambda: client.get_block_list("uncommitted"), accept=("BlobNotFound",)
            )
            there = {block.id for block in uncommitted}
        except StoreError as error:
            if error.code != "BlobNotFound":
                raise
        large.missing = deque(index for index, id_ in enumerate(large.ids) if id_ not in there)
        large.num_left = len(large.missing)
        if large.missing:
            self._large.append(large)

    async def _stage(self, large: _Large, index: int) -> None:
        """Send one block; the sender of the last block commits the file."""
        length = large.length_of(index)
        body = _Body(large.descriptor, index * BLOCK_BYTES, length, self._bandwidth)
        client = self._session.client.get_blob_client(large.file.name)
        md5 = large.md5s[index]

        def stage() -> Awaitable[object]:
            headers = {"Content-MD5": _base64(md5)}
            return client.stage_block(large.ids[index], body, length=length, headers=headers)

        await self._write(large.file, body, md5, stage)
        if not large.num_commits:
            self._tally.add(0, length)
        large.num_left -= 1
        if not large.num_left:
            await self._commit(large)

    async def _commit(self, large: _Large) -> None:
        client = self._session.client.get_blob_client(large.file.name)
        large.num_commits += 1
        try:
            await self._session.ask(
                lambda: client.commit_block_list(
                    [BlobBlock(each) for each in large.ids],
                    content_settings=ContentSettings(content_md5=bytearray(large.file.md5)),
                    validate_content=True,
                )
            )
        except StoreError as error:
            if error.code != "InvalidBlockList" or large.num_commits >= _COMMIT_TRIES:
                raise
            await self._plan(large)
            if not large.num_left:
                await self._commit(large)
            return
        self._open.discard(large.descriptor)
        os.close(large.descriptor)
        self._tally.add(1, 0)

    async def _write(
        self, file: Outgoing, body: _Body, md5: bytes, put: Callable[[], Awaitable[object]]
    ) -> None:
        """Put a piece of a file, which the store compares with its MD5 of before."""
        try:
            await self._session.ask(put)
        except _Changed:
            raise _changed(file, "it became shorter") from None
        except _Unreadable as error:
            raise _unreadable(file, str(error)) from None
        except StoreError as error:
            if error.status != 400:
                raise
            if body.md5() != md5:
                raise _changed(file, "its content changed") from None
            if error.code not in _DAMAGED:
                raise
            message = f"what is sent of `{file.path}` arrives damaged at the store"
            raise EnvironmentFailure(
                message, hint="a proxy or the network changes the data; try another network"
            ) from None


def _open(file: Outgoing) -> int:
    try:
        descriptor = os.open(file.path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        raise _changed(file, "it was deleted") from None
    except OSError as error:
        hint = hint_for(error, _WHO_MAY_READ)
        raise _unreadable(file, error.strerror, hint=hint) from None
    if os.fstat(descriptor).st_size != file.bytes:
        os.close(descriptor)
        raise _changed(file, "its size changed")
    return descriptor


def _changed(file: Outgoing, how: str) -> LaunchError:
    message = f"`{file.path}` changed while it was being sent: {how}"
    return LaunchError(message, hint="push again when no program writes to the folder")


def _unreadable(file: Outgoing, reason: str | None, *, hint: str = _WHO_MAY_READ) -> LaunchError:
    message = f"`{file.path}` cannot be read: {reason}"
    return LaunchError(message, hint=hint)


def _block_id(index: int, md5: bytes) -> str:
    """Make an id of 20 characters, as long as those of before: the store wants one length a blob."""
    return f"{index:04x}{_base64(md5[:12])}"


def _base64(raw: bytes) -> str:
    return b64encode(raw).decode("ascii")
