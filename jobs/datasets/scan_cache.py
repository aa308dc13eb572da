"""Remembers the digests of a folder's files, so that one that did not change is not read again.

One SQLite file a folder under the user's cache. It may be deleted at any time: everything in it
is found again by reading the folder.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple, Self

from jobs.datasets.walk import Found
from jobs.host.private import open_lock, try_lock

# A file that changed so shortly before it was read may change again within the same tick of its
# disk's clock, and look the same (git's "racy" files); the coarsest clock is FAT's, 2 s.
RACY_NS = 2_000_000_000
# The folder of a command that is under way.
WORK_PREFIX = "work-"
# The folder of files that a copy has received and not sent yet; its lock lies beside it.
COPY_PREFIX = "copy-"
_LOCK = "lock"
# Below this age a folder may not have its lock yet.
_NEW_WORK_S = 60
_OLD_STATE_S = 90 * 86400
_VERSION = 1
_PAGE = 500
_COMMIT_ROWS, _COMMIT_S = 1_000, 2.0
# Rows are asked for and written in their order, so that few of SQLite's pages are used again.
SMALL_CACHE = "PRAGMA cache_size = -256"
_SCHEMA = f"""
PRAGMA user_version = {_VERSION};
CREATE TABLE files (
    path TEXT PRIMARY KEY, bytes INTEGER, mtime_ns INTEGER, ctime_ns INTEGER, inode INTEGER,
    read_ns INTEGER, sha256 BLOB, md5 BLOB, block_md5s BLOB
) WITHOUT ROWID;
CREATE TABLE versions (
    name TEXT, digest TEXT, version INTEGER, PRIMARY KEY (name, digest)
) WITHOUT ROWID;
"""


class Scanned(NamedTuple):
    """A file and its digests; `read_ns` is when reading began.

    `md5` and `block_md5s` (16 bytes each, of files longer than a block) are empty where nobody
    asked for them.
    """

    path: str
    bytes: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    read_ns: int
    sha256: bytes
    md5: bytes
    block_md5s: bytes

    def tells_of(self, found: Found, *, with_md5: bool) -> bool:
        """Tell whether the file is unchanged since it was read, so that its digests hold."""
        return (
            self[:5] == found
            and max(self.mtime_ns, self.ctime_ns) + RACY_NS <= self.read_ns
            and (bool(self.md5) or not with_md5)
        )


class ScanState:
    """Digests of one folder's files, kept on disk. Several processes may have it open."""

    def __init__(self, database: sqlite3.Connection, path: Path | None = None) -> None:
        self._database = database
        self._path = path
        self._pending: list[Scanned] = []
        self._gone: list[tuple[str]] = []
        self._saved = time.monotonic()

    @classmethod
    def of(cls, folder: Path) -> ScanState:
        """Open the state of a folder; one that cannot be read or kept is begun anew."""
        path = state_file(folder)
        with suppress(OSError, sqlite3.Error):
            return cls(_open(path), path)
        with suppress(OSError, sqlite3.Error):
            path.unlink()
            return cls(_open(path), path)
        # Nowhere to keep it: the empty name is a file that goes away with the connection.
        return cls(_connect(""))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(sqlite3.Error):
            self._save()
        self._database.close()

    def known(self, *, forget_others: bool) -> Known:
        """Look files up in the order of their paths; those not asked for may be forgotten."""
        self._save()
        return Known(self._database, self._forget if forget_others else lambda _: None)

    def keep(self, scanned: Scanned) -> None:
        """Remember a file; written now and then, so that a kill costs seconds of reading."""
        self._pending.append(scanned)
        is_due = time.monotonic() - self._saved > _COMMIT_S
        if is_due or len(self._pending) >= _COMMIT_ROWS:
            self._save()

    def version(self, name: str, digest: str) -> int | None:
        """Look up the version that this content was; only the store knows if it still is."""
        query = "SELECT version FROM versions WHERE name = ? AND digest = ?"
        with suppress(sqlite3.Error):
            row = self._database.execute(query, (name, digest)).fetchone()
            return row[0] if row else None
        return None

    def keep_version(self, name: str, digest: str, version: int) -> None:
        """Remember where this content is found."""
        if self.version(name, digest) != version:
            query = "INSERT OR REPLACE INTO versions VALUES (?, ?, ?)"
            self._write(query, [(name, digest, version)])

    def _forget(self, path: str) -> None:
        self._gone.append((path,))
        if len(self._gone) >= _COMMIT_ROWS:
            self._save()

    def _save(self) -> None:
        if self._gone:
            self._write("DELETE FROM files WHERE path = ?", self._gone)
            self._gone = []
        if self._pending:
            self._write(
                "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", self._pending
            )
            self._pending = []
        self._saved = time.monotonic()

    def _write(self, query: str, rows: Sequence[Sequence[object]]) -> None:
        try:
            with self._database:
                self._database.executemany(query, rows)
        except sqlite3.OperationalError:
            return  # a full disk, a lock that is held for too long: what is not kept is read again
        except sqlite3.DatabaseError:
            if self._path is not None:  # damaged: the next command begins it anew
                self._path.unlink(missing_ok=True)


class Known:
    """The known files of a folder, asked for in the order of their paths.

    `passed_over` hears of those that nobody asked for.
    """

    def __init__(self, database: sqlite3.Connection, passed_over: Callable[[str], None]) -> None:
        self._rows = _pages(database)
        self._passed_over = passed_over
        self._next = next(self._rows, None)

    def take(self, path: str) -> Scanned | None:
        """Give the digests that are known of this file."""
        while self._next is not None and self._next.path < path:
            self._passed_over(self._next.path)
            self._next = next(self._rows, None)
        if self._next is None or self._next.path != path:
            return None
        taken, self._next = self._next, next(self._rows, None)
        return taken

    def end(self) -> None:
        """Pass over the files that nobody asked for."""
        while self._next is not None:
            self._passed_over(self._next.path)
            self._next = next(self._rows, None)


def cache_folder() -> Path:
    """Give the folder of the states, and of what a push or pull writes on its way."""
    from jobs.host.cache import cache_root  # loads more than a listing needs

    return cache_root(os.environ) / "scans"


def state_file(folder: Path) -> Path:
    """Give the file of a folder's state."""
    name = hashlib.sha256(os.fsencode(folder.absolute())).hexdigest()
    return cache_folder() / f"{name}.sqlite"


def lock_work(folder: Path) -> IO[bytes]:
    """Say that a command's folder is in use, as long as the file is open."""
    file = os.fdopen(open_lock(folder / _LOCK), "r+b")
    try_lock(file.fileno(), without_locks=True)
    return file


def sweep() -> None:
    """Remove leftovers of killed commands from the cache, and states not used for long."""
    for each in old_files(_OLD_STATE_S):
        drop(each)


def old_files(old_s: float) -> list[Path]:
    """List leftovers of killed commands, and states and copies not used for so long."""
    folder = cache_folder()
    work = [each for each in folder.glob(f"{WORK_PREFIX}*") if _age_s(each) > _NEW_WORK_S]
    states = [each for each in folder.glob("*.sqlite") if _age_s(each) > old_s]
    copies = [
        each
        for each in folder.glob(f"{COPY_PREFIX}*")
        if each.is_dir() and _age_s(each) > old_s and _is_free(copy_lock(each))
    ]
    return [*filter(_is_left, work), *states, *copies]


def drop(path: Path) -> None:
    """Remove a leftover or a state."""
    if path.name.startswith(WORK_PREFIX):
        shutil.rmtree(path, ignore_errors=True)
    elif path.name.startswith(COPY_PREFIX):
        _drop_copy(path)
    else:
        path.unlink(missing_ok=True)


def copy_lock(folder: Path) -> Path:
    """Give the lock file of a copy's folder; it stays, as somebody may wait for it."""
    return folder.with_suffix(".lock")


def _drop_copy(folder: Path) -> None:
    try:
        lock = open_lock(copy_lock(folder))
    except OSError:
        return
    try:
        if try_lock(lock, without_locks=False):
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def _is_left(work: Path) -> bool:
    return _is_free(work / _LOCK)


def _is_free(lock: Path) -> bool:
    """Tell whether nobody holds a lock; False on a disk that has no locks."""
    try:
        with lock.open("r+b") as file:
            return try_lock(file.fileno(), without_locks=False)
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _age_s(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0


def _open(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    database = _connect(str(path))
    os.utime(path)  # in use: see sweep
    return database


def _connect(name: str) -> sqlite3.Connection:
    database = sqlite3.connect(name, timeout=30)
    try:
        # It is rebuilt from the folder, so no commit has to wait for the disk.
        database.execute("PRAGMA synchronous = OFF")
        database.execute(SMALL_CACHE)
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version != _VERSION:
            database.executescript(
                "BEGIN IMMEDIATE; DROP TABLE IF EXISTS files; DROP TABLE IF EXISTS versions;"
                f"{_SCHEMA} COMMIT;"
            )
    except BaseException:
        database.close()
        raise
    return database


def _pages(database: sqlite3.Connection) -> Iterator[Scanned]:
    """Yield the rows by path, a page at a time: an open cursor would hold others' writes up."""
    query = "SELECT * FROM files WHERE path > ? ORDER BY path LIMIT ?"
    after = ""
    while True:
        try:
            rows = database.execute(query, (after, _PAGE)).fetchall()
        except sqlite3.Error:  # damaged: what is beyond is read again
            return
        yield from map(Scanned._make, rows)
        if len(rows) < _PAGE:
            return
        after = rows[-1][0]
