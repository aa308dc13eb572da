"""Gives a folder its final name only when all that is in it is on the disk for good."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path


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
