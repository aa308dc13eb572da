"""Caches blocks of remote files on the node's disk, within a bound of bytes, for all processes.

    DIR/trainyard-cache         says that the folder is one: else nothing is written there, or deleted
    DIR/lock                    held while room is made and counted
    DIR/used                    bytes taken, 8 bytes little-endian; more than there are after a kill
    DIR/claims                  a locked byte for each block that a process is fetching
    DIR/<set>/<block>           a block and its trailer; its time is when it was wanted last
    DIR/<set>/<block>.<n>.new   a block that is being written, locked by who writes it

The block that was requested longest ago is evicted first. A request counts, not a read: blocks
fetched ahead are needed although nobody has read them yet. What is under a block's name is whole or
is not given: a trailer of length and CRC-32 is looked at before a process's first read of it. The
folder may be taken away at any time; the cache begins anew. Nothing is deleted but files of such
names. An empty folder, or one where nothing else is (an older version's), becomes a cache; one that
holds anything else is done without.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import re
import struct
import threading
import time
import zlib
from collections.abc import Generator
from pathlib import Path

_TRAILER = struct.Struct("<4sII")
_MAGIC = b"tyb1"
_USED = struct.Struct("<Q")
# struct flock of Linux: type, whence, start, length, pid.
_FLOCK = struct.Struct("@hhqqi")
NEW_SUFFIX = ".new"
MARKER = "trainyard-cache"
_SET = re.compile(r"[0-9a-f]{32}-[0-9]+")
_BLOCK = re.compile(r"\w+-[0-9]{6,}-[0-9]{6,}(\.[0-9]+-[0-9]+\.new)?", re.ASCII)
_OWN = frozenset({MARKER, "lock", "used", "claims"})
# A look at all blocks, for which all processes wait, makes room for this share of the cache.
SLACK_DIVISOR = 32
# Blocks that need no second look; to forget them costs one.
MAX_KNOWN = 1 << 14
# After a disk was full or did not answer.
REST_S = 30.0


class BlockCache:
    """The blocks of one set of files in a cache that other sets, processes and runs use, too."""

    def __init__(self, folder: Path, name: str, max_bytes: int) -> None:
        self._folder = folder
        self._blocks = folder / name
        self.max_bytes = max_bytes
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._locked: int | None = None
        self._claims: int | None = None
        # Which file of that name was looked at and found whole.
        self._known: dict[str, int] = {}
        self._rests_until_s = 0.0

    def takes(self, block_bytes: int) -> bool:
        """Tell whether blocks of that size fit and the disk takes them at present."""
        is_large_enough = block_bytes + _TRAILER.size <= self.max_bytes
        return is_large_enough and time.monotonic() >= self._rests_until_s

    def want(self, block: str) -> bool:
        """Mark a block as wanted last; False if it is not there."""
        try:
            os.utime(f"{self._blocks}/{block}")
        except OSError:
            return False
        return True

    def read(self, block: str, start: int, length: int, *, block_bytes: int) -> bytes | None:
        """Give a part of a block of `block_bytes`, or None where it is not there or not whole."""
        path = f"{self._blocks}/{block}"
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            number = os.fstat(file).st_ino
            if self._known.get(block) != number:
                if not _is_whole(file, block_bytes):
                    self._enter()
                    _remove(path)
                    return None
                self._remember(block, number)
            return os.pread(file, length, start)
        except OSError:
            return None
        finally:
            os.close(file)

    def write(self, block: str, content: bytes) -> None:
        """Keep a block, unless there is no room for it or the disk does not take it."""
        path = f"{self._blocks}/{block}"
        try:
            reserved = self._reserve(block, len(content) + _TRAILER.size)
        except OSError as error:
            self._rest(error)
            return
        if reserved is None:
            return
        file, temporary = reserved
        try:
            trailer = _TRAILER.pack(_MAGIC, len(content), zlib.crc32(content))
            _write_all(file, content + trailer)
            with self._alone():  # else who counts the blocks may see it under neither name
                os.rename(temporary, path)  # noqa: PTH104 - both are texts here
            self._remember(block, os.fstat(file).st_ino)
        except OSError as error:
            _remove(temporary)
            self._rest(error)
        finally:
            os.close(file)

    def _remember(self, block: str, number: int) -> None:
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[block] = number

    def _rest(self, error: OSError) -> None:
        # Where the folder was taken away the next block finds a new one.
        if not isinstance(error, FileNotFoundError):
            self._rests_until_s = time.monotonic() + REST_S

    @contextlib.contextmanager
    def claim(self, block: str) -> Generator[bool]:
        """Claim the fetching of a block; yields False if another process holds it.

        A claim ends with its process, too. Where the disk knows no claims everybody has one.
        """
        # Locks of this kind are a file description's, so threads of one process share them.
        place = zlib.crc32(f"{self._blocks.name}/{block}".encode())
        try:
            claims = self._open_claims()
            fcntl.fcntl(claims, fcntl.F_OFD_SETLK, _flock(fcntl.F_WRLCK, place))
        except BlockingIOError:
            yield False
            return
        except OSError:
            yield True
            return
        try:
            yield True
        finally:
            with contextlib.suppress(OSError):
                fcntl.fcntl(claims, fcntl.F_OFD_SETLK, _flock(fcntl.F_UNLCK, place))

    def _open_claims(self) -> int:
        with self._lock:
            if self._claims is None:
                self._enter()
                self._claims = os.open(
                    self._folder / "claims", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
                )
            return self._claims

    def _enter(self) -> None:
        """Make the folder, and mark it; raises OSError where it holds what no cache wrote."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        marker = self._folder / MARKER
        if marker.is_file():
            return
        for entry in self._folder.iterdir():
            if entry.name not in _OWN and not _SET.fullmatch(entry.name):
                message = f"`{self._folder}` is not a cache: it holds `{entry.name}`"
                raise FileExistsError(errno.EEXIST, message)
        marker.touch(mode=0o600)

    # --- room ----------------------------------------------------------------------------------

    def _reserve(self, block: str, size: int) -> tuple[int, str] | None:
        """Make a file of that size under a passing name; None where there is no room for it."""
        with self._alone():
            used = self._read_used()
            if used is None or used + size > self.max_bytes:
                used = self._make_room(size)
                if used is None:
                    return None
            # First counted, then taken: a kill in between leaves too much counted, never too little.
            self._write_used(used + size)
            self._blocks.mkdir(exist_ok=True)
            temporary = f"{self._blocks}/{block}.{os.getpid()}-{next(self._numbers)}{NEW_SUFFIX}"
            file = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                os.posix_fallocate(file, 0, size)
            except OSError:
                _remove(temporary)
                os.close(file)
                raise
            return file, temporary

    @contextlib.contextmanager
    def _alone(self) -> Generator[None]:
        """Lock the cache for this thread of this process, to count and make room."""
        with self._lock:
            while True:
                if self._locked is None:
                    self._enter()
                    self._locked = os.open(
                        self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
                    )
                fcntl.flock(self._locked, fcntl.LOCK_EX)
                if _is_at(self._locked, self._folder / "lock"):
                    break
                # The folder was taken away, and others may hold the lock of a new one.
                os.close(self._locked)
                self._locked = None
            try:
                yield
            finally:
                fcntl.flock(self._locked, fcntl.LOCK_UN)

    def _read_used(self) -> int | None:
        try:
            content = (self._folder / "used").read_bytes()
        except FileNotFoundError:
            return None
        return _USED.unpack(content)[0] if len(content) == _USED.size else None

    def _write_used(self, used: int) -> None:
        file = os.open(self._folder / "used", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(file, _USED.pack(used), 0)
        finally:
            os.close(file)

    def _make_room(self, size: int) -> int | None:
        """Take away the oldest blocks; gives the bytes that are left, None where they are too many."""
        kept: list[tuple[int, int, str]] = []
        used = 0
        for entry in self._entries():
            if entry.name.endswith(NEW_SUFFIX) and _is_abandoned(entry.path):
                _remove(entry.path)
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            used += status.st_size
            if not entry.name.endswith(NEW_SUFFIX):
                kept.append((status.st_mtime_ns, status.st_size, entry.path))
        if used + size <= self.max_bytes:
            return used
        slack = self.max_bytes // SLACK_DIVISOR
        kept.sort(reverse=True)
        while kept and used + size > self.max_bytes - slack:
            _, taken, path = kept.pop()
            _remove(path)
            used -= taken
        return used if used + size <= self.max_bytes else None

    def _entries(self) -> Generator[os.DirEntry[str]]:
        """Find the blocks of all sets: nothing else is counted, or deleted."""
        with os.scandir(self._folder) as folders:
            for folder in folders:
                if _SET.fullmatch(folder.name) and folder.is_dir(follow_symlinks=False):
                    with os.scandir(folder) as blocks:
                        yield from (
                            block
                            for block in blocks
                            if _BLOCK.fullmatch(block.name) and block.is_file(follow_symlinks=False)
                        )

    def __del__(self) -> None:
        for file in (self._locked, self._claims):
            if file is not None:
                os.close(file)


def _is_whole(file: int, block_bytes: int) -> bool:
    if os.fstat(file).st_size != block_bytes + _TRAILER.size:
        return False
    content = memoryview(os.pread(file, block_bytes + _TRAILER.size, 0))
    if len(content) != block_bytes + _TRAILER.size:
        return False
    trailer = _TRAILER.pack(_MAGIC, block_bytes, zlib.crc32(content[:block_bytes]))
    return content[block_bytes:] == trailer


def _is_abandoned(path: str) -> bool:
    """Tell whether the process that wrote this file is gone."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(file)
    return True


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _flock(kind: int, place: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, place, 1, 0)


def _write_all(file: int, content: bytes) -> None:
    written = 0
    while written < len(content):
        written += os.pwrite(file, memoryview(content)[written:], written)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)  # noqa: PTH108 - a text here
