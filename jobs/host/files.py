"""Writes files and folders that are there whole or not at all, and keeps room for a run's end."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

_RESERVE = ".reserve"
_RESERVE_BYTES = 64 << 10


def write_file(path: Path, content: bytes, *, mode: int = 0o666, is_synced: bool = True) -> None:
    """Write a whole file under a draft's name, then rename it; on disk on return if `is_synced`.

    `mode` is what the umask is applied to. Raises OSError and leaves no draft.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0)
    try:
        with open(os.open(draft, flags, mode), "wb") as file:  # noqa: PTH123 (a descriptor)
            file.write(content)
            if is_synced:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        with suppress(OSError):
            draft.unlink()
        raise
    if is_synced:
        sync_folder(path.parent)


def finish_folder(partial: Path, final: Path) -> None:
    """Rename a folder; under its new name it is whole, whatever becomes of the machine."""
    _sync_file_system_of(partial)
    partial.rename(final)


def _sync_file_system_of(folder: Path) -> None:
    if sys.platform != "linux":
        if hasattr(os, "sync"):
            os.sync()
        return
    import ctypes

    # One call for a million files; os has none for a single file system.
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if libc.syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(folder))
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Get the names in a folder onto the disk."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
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
    """Release the space that `reserve_ending` took."""
    (run_dir / _RESERVE).unlink(missing_ok=True)
