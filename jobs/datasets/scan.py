"""Finds the digests of a folder's files: several read at once, none that did not change."""

from __future__ import annotations

import hashlib
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path
from threading import Event

from jobs.blobs.store import BLOCK_BYTES
from jobs.contracts.errors import LaunchError
from jobs.datasets.scan_cache import Scanned, ScanState
from jobs.datasets.walk import Found, look, walk
from jobs.host.parallel import in_order
from jobs.host.progress import Progress, Transfer, silent

# What one thread reads before it takes the next: enough files for a thread to be worth waking.
_CHUNK_FILES, _CHUNK_BYTES = 128, 16 << 20
# Progress is told of after so many files.
_TOLD_FILES = 64
_READ_BYTES = 1 << 20
# Of a large file, read while earlier ones are hashed.
_CHUNKS_AHEAD = 16
_READ_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def scan(
    folder: Path,
    state: ScanState,
    progress: Progress = silent,
    warn: Callable[[str], None] = lambda _: None,
    *,
    only: str | None = None,
) -> Iterator[Scanned]:
    """Yield every file of a folder with its digests, by path; forgets files that went.

    With `only` that one file of it. Raises LaunchError for a folder that cannot be a dataset, or changes while it is read.
    """
    known = state.known(forget_others=only is None)
    found = walk(folder, warn) if only is None else iter([look(folder, only, warn)])
    num_files = num_bytes = 0
    for scanned in _digests(folder, found, state, with_md5=True, take=known.take):
        num_files += 1
        num_bytes += scanned.bytes
        if num_files % _TOLD_FILES == 0 or scanned.bytes >= _CHUNK_BYTES:
            progress(Transfer(files_done=num_files, bytes_done=num_bytes))
        yield scanned
    known.end()
    if not num_files:
        message = f"`{folder}` holds no file"
        raise LaunchError(message, hint="launch data prepare digits --to DIR makes a first dataset")
    progress(Transfer(files_done=num_files, bytes_done=num_bytes, files=num_files, bytes=num_bytes))


def scan_these(folder: Path, found: Iterable[Found], state: ScanState) -> Iterator[Scanned]:
    """Yield the given files, which come by path, with their SHA-256."""
    take = state.known(forget_others=False).take
    return _digests(folder, found, state, with_md5=False, take=take)


def _digests(
    folder: Path,
    found: Iterable[Found],
    state: ScanState,
    *,
    with_md5: bool,
    take: Callable[[str], Scanned | None],
) -> Iterator[Scanned]:
    """Yield the files in the order they come in; few are in memory at once."""
    root = str(folder)
    stop = Event()

    def read(chunk: list[Found | Scanned]) -> list[Scanned]:
        return [
            each if isinstance(each, Scanned) else _read(root, each, stop, with_md5=with_md5)
            for each in chunk
        ]

    def is_known(chunk: list[Found | Scanned]) -> bool:
        return all(isinstance(each, Scanned) for each in chunk)

    for before, chunk in in_order(
        read, _chunks(found, take, with_md5=with_md5), is_light=is_known, stop=stop.set
    ):
        for was, scanned in zip(before, chunk, strict=True):
            if was is not scanned:
                state.keep(scanned)
            yield scanned


def _chunks(
    found: Iterable[Found], take: Callable[[str], Scanned | None], *, with_md5: bool
) -> Iterator[list[Found | Scanned]]:
    chunk: list[Found | Scanned] = []
    num_bytes = 0
    for file in found:
        known = take(file.path)
        if known is not None and known.tells_of(file, with_md5=with_md5):
            chunk.append(known)
        else:
            chunk.append(file)
            num_bytes += file.bytes
        if len(chunk) == _CHUNK_FILES or num_bytes >= _CHUNK_BYTES:
            yield chunk
            chunk, num_bytes = [], 0
    if chunk:
        yield chunk


def _read(root: str, found: Found, stop: Event, *, with_md5: bool) -> Scanned:
    """Read one file; raises LaunchError where it changes meanwhile."""
    path = f"{root}/{found.path}"
    try:
        descriptor = os.open(path, _READ_FLAGS)
    except OSError as error:
        raise _unreadable(path, error) from None
    try:
        read_ns = time.time_ns()
        sha256, md5, block_md5s, num_bytes = _digest(
            descriptor, found.bytes, stop, with_md5=with_md5
        )
        after = Found.of(found.path, os.fstat(descriptor))
    except OSError as error:
        raise _unreadable(path, error) from None
    finally:
        os.close(descriptor)
    if after != found or num_bytes != found.bytes:
        message = f"`{path}` changed while it was being read"
        raise LaunchError(message, hint="type the same again when no program writes to the folder")
    return Scanned(*found, read_ns, sha256, md5, block_md5s)


def _digest(
    descriptor: int, size: int, stop: Event, *, with_md5: bool
) -> tuple[bytes, bytes, bytes, int]:
    def chunks() -> Iterator[bytes]:
        # One more than there should be: a file that grew is noticed.
        while chunk := os.read(descriptor, min(size + 1, _READ_BYTES)):
            # Nobody waits for the digest of a large file any more.
            if stop.is_set():
                return
            yield chunk

    if not with_md5:
        sha256, num_bytes = hashlib.sha256(), 0
        for chunk in chunks():
            sha256.update(chunk)
            num_bytes += len(chunk)
        return sha256.digest(), b"", b"", num_bytes
    if size <= BLOCK_BYTES:
        sha256, md5, num_bytes = digest(chunks())
        return sha256, md5, b"", num_bytes
    return digest_blocks(chunks())


def digest(chunks: Iterable[bytes]) -> tuple[bytes, bytes, int]:
    """Give SHA-256, MD5 and length of a content."""
    sha256, md5, num_bytes = hashlib.sha256(), hashlib.md5(usedforsecurity=False), 0
    for chunk in chunks:
        sha256.update(chunk)
        md5.update(chunk)
        num_bytes += len(chunk)
    return sha256.digest(), md5.digest(), num_bytes


def digest_blocks(chunks: Iterable[bytes]) -> tuple[bytes, bytes, bytes, int]:
    """Give SHA-256, MD5, the MD5s of its blocks, joined, and length of a content.

    Each of the three is found in a thread of its own; few chunks are in memory at once.
    """
    sha256, md5, blocks = hashlib.sha256(), hashlib.md5(usedforsecurity=False), _BlockMd5s()
    num_bytes = 0
    updates: list[Callable[[bytes], None]] = [sha256.update, md5.update, blocks.update]
    window: deque[list[Future[None]]] = deque()
    with ExitStack() as opened:
        threads = [opened.enter_context(ThreadPoolExecutor(1)) for _ in updates]
        for chunk in chunks:
            num_bytes += len(chunk)
            pairs = zip(threads, updates, strict=True)
            window.append([thread.submit(update, chunk) for thread, update in pairs])
            if len(window) > _CHUNKS_AHEAD:
                wait(window.popleft())
    return sha256.digest(), md5.digest(), blocks.digests(), num_bytes


class _BlockMd5s:
    """The MD5 of each BLOCK_BYTES of a content that comes in any pieces."""

    def __init__(self) -> None:
        self._done: list[bytes] = []
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._left = BLOCK_BYTES

    def update(self, chunk: bytes) -> None:
        view = memoryview(chunk)
        while view:
            piece, view = view[: self._left], view[self._left :]
            self._md5.update(piece)
            self._left -= len(piece)
            if not self._left:
                self._done.append(self._md5.digest())
                self._md5, self._left = hashlib.md5(usedforsecurity=False), BLOCK_BYTES

    def digests(self) -> bytes:
        rest = [] if self._left == BLOCK_BYTES else [self._md5.digest()]
        return b"".join([*self._done, *rest])


def _unreadable(path: str, error: OSError) -> LaunchError:
    message = f"`{path}` cannot be read: {error.strerror}"
    return LaunchError(message, hint="check who may read it, then type the same again")
