"""Sends files: small ones in one request, large ones in blocks that a later try need not repeat.

A block's id says which content it has, so what a killed upload left uncommitted is found and used.
Nothing has its blob's name before all of it is there and the store has checked every MD5.
"""

from __future__ import annotations

import hashlib
import os
import re
from base64 import b64encode
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from jobs.blobs.transfers.connection import Connection, FileRange, Shortened, Steps, Unreadable
from jobs.blobs.transfers.container import Container, StoreError
from jobs.blobs.transfers.crew import Job
from jobs.blobs.transfers.files import BLOCK_BYTES, Outgoing, Tally
from jobs.blobs.transfers.open_files import hint_for
from jobs.blobs.transfers.pace import Pace
from jobs.blobs.transfers.portable import read_at, will_read
from jobs.contracts.errors import EnvironmentFailure, LaunchError

MOST_BLOCKS = 50_000
_FILES_AHEAD = 16
# A store that lost blocks it had acknowledged gets them again so often.
_COMMIT_TRIES = 4
_WHO_MAY_READ = "see who may read it, and push again"
_UNCOMMITTED = re.compile(rb"<UncommittedBlocks>(.*?)</UncommittedBlocks>", re.DOTALL)
_BLOCK_NAME = re.compile(rb"<Name>([^<]+)</Name>")


class _Large:
    """A file that goes in blocks, while it does."""

    def __init__(self, file: Outgoing, descriptor: int) -> None:
        self.file = file
        self.descriptor = descriptor
        self.ids = [_block_id(index, md5) for index, md5 in enumerate(file.block_md5s)]
        self.missing: deque[int] = deque()
        self.num_left = 0
        self.num_commits = 0

    def range_of(self, index: int) -> FileRange:
        offset = index * BLOCK_BYTES
        length = min(BLOCK_BYTES, self.file.bytes - offset)
        return FileRange(descriptor=self.descriptor, offset=offset, length=length)


class Upload:
    """The jobs of one `send`; takes the next file only when a connection is free for it."""

    def __init__(
        self, container: Container, files: Iterable[Outgoing], tally: Tally, pace: Pace
    ) -> None:
        self._container = container
        self._files: Iterator[Outgoing] = iter(files)
        self._tally = tally
        self._pace = pace
        self._large: deque[_Large] = deque()
        self._ahead: deque[tuple[Outgoing, int]] = deque()
        self._open: set[int] = set()

    def next_job(self) -> Job | None:
        """See Jobs: blocks of files that were begun come before new files."""
        while self._large:
            large = self._large[0]
            if large.missing:
                return partial(self._stage, large, large.missing.popleft())
            self._large.popleft()
        self._read_ahead()
        if not self._ahead:
            return None
        file, descriptor = self._ahead.popleft()
        return partial(self._begin if file.bytes > BLOCK_BYTES else self._put, file, descriptor)

    def close(self) -> None:
        """Close the files that are still open."""
        self._open.update(descriptor for _, descriptor in self._ahead)
        for descriptor in self._open:
            os.close(descriptor)
        self._open.clear()
        self._ahead.clear()

    def _read_ahead(self) -> None:
        """Let the kernel fetch the next files from a slow disk, while others are being sent."""
        most = min(_FILES_AHEAD, self._pace.most)
        while len(self._ahead) < most and (file := next(self._files, None)):
            descriptor = _open(file)
            self._ahead.append((file, descriptor))
            will_read(descriptor, 0, min(file.bytes, BLOCK_BYTES))

    def _put(self, file: Outgoing, descriptor: int, connection: Connection) -> Steps[None]:
        """Send a small file in one request."""
        try:
            whole = FileRange(descriptor=descriptor, offset=0, length=file.bytes)
            headers = {"x-ms-blob-type": "BlockBlob"}
            yield from self._write(connection, file, whole, file.md5, headers=headers)
        finally:
            os.close(descriptor)
        self._tally.add(1, file.bytes)

    def _begin(self, file: Outgoing, descriptor: int, connection: Connection) -> Steps[None]:
        """Ask which blocks of a large file the store has from an earlier try."""
        self._open.add(descriptor)
        assert len(file.block_md5s) == -(-file.bytes // BLOCK_BYTES)
        if len(file.block_md5s) > MOST_BLOCKS:
            message = f"`{file.path}` is larger than a blob can be: {MOST_BLOCKS} blocks"
            raise LaunchError(message, hint="launch data pack makes shards of a folder")
        large = _Large(file, descriptor)
        yield from self._plan(large, connection)
        there = file.bytes - sum(large.range_of(index).length for index in large.missing)
        self._tally.find(there)
        if not large.num_left:
            yield from self._commit(large, connection)

    def _plan(self, large: _Large, connection: Connection) -> Steps[None]:
        answer = yield from self._container.request(
            connection,
            "GET",
            large.file.name,
            query={"blocklisttype": "uncommitted", "comp": "blocklist"},
            accept=("BlobNotFound",),
            pace=self._pace,
        )
        found = _UNCOMMITTED.search(answer.body) if answer.status == 200 else None
        there = {name.decode("ascii") for name in _BLOCK_NAME.findall(found[1] if found else b"")}
        large.missing = deque(index for index, id_ in enumerate(large.ids) if id_ not in there)
        large.num_left = len(large.missing)
        if large.missing:
            self._large.append(large)

    def _stage(self, large: _Large, index: int, connection: Connection) -> Steps[None]:
        """Send one block; whoever sends the last one commits the file."""
        body = large.range_of(index)
        will_read(body.descriptor, body.offset, body.length)
        query = {"blockid": large.ids[index], "comp": "block"}
        md5 = large.file.block_md5s[index]
        yield from self._write(connection, large.file, body, md5, query=query)
        if not large.num_commits:
            self._tally.add(0, body.length)
        large.num_left -= 1
        if not large.num_left:
            yield from self._commit(large, connection)

    def _commit(self, large: _Large, connection: Connection) -> Steps[None]:
        blocks = "".join([f"<Latest>{id_}</Latest>" for id_ in large.ids])
        body = f'<?xml version="1.0" encoding="utf-8"?><BlockList>{blocks}</BlockList>'.encode()
        large.num_commits += 1
        try:
            yield from self._container.request(
                connection,
                "PUT",
                large.file.name,
                query={"comp": "blocklist"},
                headers={
                    "content-md5": _base64(hashlib.md5(body, usedforsecurity=False).digest()),
                    "x-ms-blob-content-md5": _base64(large.file.md5),
                },
                body=body,
                pace=self._pace,
            )
        except StoreError as error:
            if error.code != "InvalidBlockList" or large.num_commits >= _COMMIT_TRIES:
                raise
            yield from self._plan(large, connection)
            if not large.num_left:
                yield from self._commit(large, connection)
            return
        self._open.discard(large.descriptor)
        os.close(large.descriptor)
        self._tally.add(1, 0)

    def _write(
        self,
        connection: Connection,
        file: Outgoing,
        body: FileRange,
        md5: bytes,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Steps[None]:
        """Put a piece of a file, which the store compares with its MD5 of before."""
        try:
            yield from self._container.request(
                connection,
                "PUT",
                file.name,
                query=query,
                headers={"content-md5": _base64(md5), **(headers or {})},
                body=body,
                pace=self._pace,
            )
        except Shortened:
            raise _changed(file, "it became shorter") from None
        except Unreadable as error:
            raise _unreadable(file, str(error)) from None
        except StoreError as error:
            if error.status != 400:
                raise
            if _md5_of(body) != md5:
                raise _changed(file, "its content is another") from None
            # The second is what Azurite says.
            if error.code not in ("Md5Mismatch", "InvalidOperation"):
                raise
            message = f"what is sent of `{file.path}` arrives damaged at the store"
            raise EnvironmentFailure(message, hint="look for what damages it on the way") from None


def _open(file: Outgoing) -> int:
    try:
        descriptor = os.open(file.path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        raise _changed(file, "it is gone") from None
    except OSError as error:
        hint = hint_for(error, _WHO_MAY_READ)
        raise _unreadable(file, error.strerror, hint=hint) from None
    if os.fstat(descriptor).st_size != file.bytes:
        os.close(descriptor)
        raise _changed(file, "it has another size")
    return descriptor


def _changed(file: Outgoing, how: str) -> LaunchError:
    message = f"`{file.path}` changed while it was being sent: {how}"
    return LaunchError(message, hint="push again when nobody writes to the folder")


def _unreadable(file: Outgoing, reason: str | None, *, hint: str = _WHO_MAY_READ) -> LaunchError:
    message = f"`{file.path}` cannot be read: {reason}"
    return LaunchError(message, hint=hint)


def _md5_of(body: FileRange) -> bytes:
    digest = hashlib.md5(usedforsecurity=False)
    at, end = body.offset, body.offset + body.length
    while chunk := read_at(body.descriptor, min(1 << 20, end - at), at):
        digest.update(chunk)
        at += len(chunk)
    return digest.digest()


def _block_id(index: int, md5: bytes) -> str:
    return _base64(index.to_bytes(4, "big") + md5)


def _base64(raw: bytes) -> str:
    return b64encode(raw).decode("ascii")
