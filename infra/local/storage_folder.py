"""Keeps a storage folder private to its owner, locked while it changes, and its files whole."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

LOCK_TIMEOUT_S = 60.0
POLL_S = 0.05
# Azurite starts on a full disk and fails later, at somebody's upload.
MIN_FREE_BYTES = 16 << 20
LOCK_FILE = "server.lock"


class AzuriteError(Exception):
    """The server cannot be started or stopped; the message says why and what to do."""


def make_private(folder: Path) -> None:
    """Create the folder and its parents for us alone; close one that is there.

    Raises AzuriteError for a folder of another user, who could read the key and the blobs.
    """
    for each in [*reversed(folder.parents), folder]:
        if not each.is_dir():
            each.mkdir(mode=0o700, exist_ok=True)
    if (owner := folder.stat().st_uid) != os.geteuid():
        message = f"{folder} is another user's (uid {owner}); chown it, or take another folder"
        raise AzuriteError(message)
    folder.chmod(0o700)


@contextmanager
def explained(folder: Path) -> Generator[None]:
    """Turn errors of the disk (full, read-only, a file in the way) into AzuriteError."""
    try:
        yield
    except OSError as error:
        message = f"{error.filename or folder}: {error.strerror}"
        raise AzuriteError(message) from error


@contextmanager
def locked(folder: Path) -> Generator[int]:
    fd = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    message = f"{folder / LOCK_FILE} is held: somebody starts or stops the server"
                    raise AzuriteError(message) from None
                time.sleep(POLL_S)
        yield fd
    finally:
        os.close(fd)


def check_free_space(folder: Path) -> None:
    status = os.statvfs(folder)
    free = status.f_bavail * status.f_frsize
    if free < MIN_FREE_BYTES:
        message = (
            f"the disk of {folder} is full: {free >> 10} KiB free, "
            f"Azurite needs {MIN_FREE_BYTES >> 20} MiB to start"
        )
        raise AzuriteError(message)


def write_whole(path: Path, text: str) -> None:
    """Write a file by a rename, readable by its owner only."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
