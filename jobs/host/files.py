"""Gets onto the disk what has to be there: whole folders, and how a run ended."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

_RESERVE = ".reserve"
_RESERVE_BYTES = 64 << 10


def finish_folder(partial: Path, final: Path) -> None:
    """Rename a folder; under its new name it is whole, whatever becomes of the machine."""
    _sync_file_system_of(partial)
    partial.rename(final)


def _sync_file_system_of(folder: Path) -> None:
    if sys.platform != "linux":
        if hasattr(os, "sync"):
            os.sync()
        return
    # One call for a million files; os has none for a single file system.
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if libc.syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(folder))
    finally:
        os.close(descriptor)


def reserve_ending(run_dir: Path) -> None:
    """Keep so much of the disk that the run's end can be written down when the disk is full."""
    descriptor = os.open(run_dir / _RESERVE, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.posix_fallocate(descriptor, 0, _RESERVE_BYTES)
    finally:
        os.close(descriptor)


def use_reserve(run_dir: Path) -> None:
    """Give back what `reserve_ending` took."""
    (run_dir / _RESERVE).unlink(missing_ok=True)
