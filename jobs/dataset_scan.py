"""Finds the digests of a folder's files: several read at once, none that did not change."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jobs.dataset_walk import Found, walk
from jobs.errors import LaunchError
from jobs.parallel import in_order
from jobs.progress import Progress, Transfer, silent
from jobs.scan_state import Scanned, ScanState
from jobs.store import BLOCK_BYTES

# What one thread reads before it takes the next: enough files for a thread to be worth waking.
_CHUNK_FILES, _CHUNK_BYTES = 128, 16 << 20
# Of a file of this size the three digests are computed at once, each on a thread.
_LARGE_BYTES = 64 << 20
_READ_BYTES = 1 << 20


def scan(
    folder: Path,
    state: ScanState,
    progress: Progress = silent,
    warn: Callable[[str], None] = lambda _: None,
) -> Iterator[Scanned]:
    """Yield every file of a folder with its digests, by path; forgets files that went.

    Raises LaunchError for a folder that cannot be a dataset, or changes while it is read.
    """
    known = state.known(forget_others=True)
    num_files = num_bytes = 0
    for scanned in _digests(folder, walk(folder, warn), state, with_md5=True, take=known.take):
        num_files += 1
        num_bytes += scanned.bytes
        progress(Transfer(files_done=num_files, bytes_done=num_bytes))
        yield scanned
    known.end()
    if not num_files:
        message = f"`{folder}` holds no file"
        raise LaunchError(message, hint="launch data prepare digits --to DIR makes a first one")
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

    def read(chunk: list[Found | Scanned]) -> list[Scanned]:
        return [
            each if isinstance(each, Scanned) else _read(root, each, with_md5=with_md5)
            for each in chunk
        ]

    def is_known(chunk: list[Found | Scanned]) -> bool:
        return all(isinstance(each, Scanned) for each in chunk)

    for before, chunk in in_order(read, _chunks(found, take, with_md5=with_md5), is_known):
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


def _read(root: str, found: Found, *, with_md5: bool) -> Scanned:
    """Read one file; raises LaunchError where it changes meanwhile."""
    path = f"{root}/{found.path}"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise _unreadable(path, error) from None
    try:
        read_ns = time.time_ns()
        sha256, md5, block_md5s, num_bytes = _digest(descriptor, found.bytes, with_md5=with_md5)
        after = Found.of(found.path, os.fstat(descriptor))
    except OSError as error:
        raise _unreadable(path, error) from None
    finally:
        os.close(descriptor)
    if after != found or num_bytes != found.bytes:
        message = f"`{path}` changed while it was being read"
        raise LaunchError(message, hint="type the same again when nobody writes to the folder")
    return Scanned(*found, read_ns, sha256, md5, block_md5s)


def _digest(descriptor: int, size: int, *, with_md5: bool) -> tuple[bytes, bytes, bytes, int]:
    if not with_md5:
        sha256, num_bytes = hashlib.sha256(), 0
        while chunk := os.read(descriptor, min(size + 1, _READ_BYTES)):
            sha256.update(chunk)
            num_bytes += len(chunk)
        return sha256.digest(), b"", b"", num_bytes
    if size <= BLOCK_BYTES:
        return _digest_small(descriptor, size)
    return digest_blocks(iter(lambda: _read_block(descriptor), b""), at_once=size >= _LARGE_BYTES)


def _digest_small(descriptor: int, size: int) -> tuple[bytes, bytes, bytes, int]:
    sha256, md5, num_bytes = hashlib.sha256(), hashlib.md5(usedforsecurity=False), 0
    while chunk := os.read(descriptor, min(size + 1, _READ_BYTES)):
        sha256.update(chunk)
        md5.update(chunk)
        num_bytes += len(chunk)
    return sha256.digest(), md5.digest(), b"", num_bytes


def digest_blocks(
    blocks: Iterator[bytes], *, at_once: bool = False
) -> tuple[bytes, bytes, bytes, int]:
    """Give SHA-256, MD5, the blocks' MD5s and the length of a content that comes in blocks."""
    sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    block_md5s: list[bytes] = []
    num_bytes = 0

    def of_block(block: bytes) -> None:
        block_md5s.append(hashlib.md5(block, usedforsecurity=False).digest())

    with ThreadPoolExecutor(2) as pool:
        for block in blocks:
            num_bytes += len(block)
            if at_once:
                others = [pool.submit(md5.update, block), pool.submit(of_block, block)]
                sha256.update(block)
                for each in others:
                    each.result()
            else:
                sha256.update(block)
                md5.update(block)
                of_block(block)
    return sha256.digest(), md5.digest(), b"".join(block_md5s), num_bytes


def _read_block(descriptor: int) -> bytes:
    block = os.read(descriptor, BLOCK_BYTES)
    while 0 < len(block) < BLOCK_BYTES and (more := os.read(descriptor, BLOCK_BYTES - len(block))):
        block += more
    return block


def _unreadable(path: str, error: OSError) -> LaunchError:
    message = f"`{path}` cannot be read: {error.strerror}"
    return LaunchError(message, hint="see who may read it, and type the same again")
