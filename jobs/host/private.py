"""Makes the folders and lock files that only their owner may enter, read or hold.

Standard library only: set-up calls it before any environment exists.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from errno import ENOTDIR
from pathlib import Path

_LOCKED_PAUSE_S = 0.1
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing, with mode 0700; one that is there stays."""
    # `parents=True` would give the ones above the usual mode.
    for each in [*reversed(folder.parents), folder]:
        if not each.is_dir():
            try:
                each.mkdir(mode=0o700, exist_ok=True)
            except FileExistsError as error:
                raise NotADirectoryError(ENOTDIR, os.strerror(ENOTDIR), str(each)) from error


def close_folder(folder: Path) -> bool:
    """Remove other users' permissions from our folder; False if they had none."""
    try:
        status = folder.stat()
    except OSError:
        return False
    if os.name != "posix" or status.st_uid != os.geteuid() or not status.st_mode & _OTHERS:
        return False
    folder.chmod(stat.S_IMODE(status.st_mode) & ~_OTHERS)
    return True


def open_lock(path: Path) -> int:
    """Open a lock file, made where it is missing; gives its descriptor, which is not inherited.

    Its mode is 0600, also where an older `launch` made it: whoever can read a file can hold it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    if os.name == "posix" and os.fstat(descriptor).st_mode & _OTHERS:
        with suppress(PermissionError):  # another's: the folder that it lies in decides
            os.fchmod(descriptor, 0o600)
    return descriptor


def try_lock(descriptor: int, *, without_locks: bool) -> bool:
    """Lock an open file for as long as it is open; False where another process has it.

    `without_locks` is the answer of a disk that has no locks, as some network mounts.
    """
    try:
        if sys.platform == "win32":
            import msvcrt

            os.lseek(descriptor, 0, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # the latter is Windows' word
        return False
    except OSError:
        return without_locks
    return True


@contextmanager
def locked(
    path: Path,
    *,
    waiting: Callable[[], AbstractContextManager[object]] = nullcontext,
    without_locks: bool = False,
) -> Generator[int]:
    """Hold the lock file at `path`, within `waiting()` until it is had; yields its descriptor.

    Raises OSError where the file cannot be opened or, unless `without_locks`, its disk has no locks.
    """
    descriptor = open_lock(path)
    try:
        if not try_lock(descriptor, without_locks=without_locks):
            with waiting():
                wait_for_lock(descriptor)
        yield descriptor
    finally:
        os.close(descriptor)


def wait_for_lock(descriptor: int) -> None:
    """Lock an open file for as long as it is open; block while another process has it."""
    if sys.platform == "win32":
        while not try_lock(descriptor, without_locks=False):
            time.sleep(_LOCKED_PAUSE_S)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX)
