"""Syncs files to the disk while more of them are being written."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from pathlib import Path

# Small enough that the disk never waits for work, large enough that it is asked rarely.
SYNC_BYTES = 256 << 20


def boot_id() -> str | None:
    """Give the id of the machine's current start; what was written since is at least in memory."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None


def sync_files_of(folder: Path) -> None:
    """Wait until everything on the folder's file system is on the disk."""
    if sys.platform != "linux":
        if hasattr(os, "sync"):
            os.sync()
        return
    # One call for a million files; os has none for a single file system.
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if libc.syncfs(descriptor) != 0:
            raise OSError(ctypes.get_errno(), "not everything reached the disk", str(folder))
    finally:
        os.close(descriptor)


class BackgroundSync:
    """Syncs written files on a thread; the first `num_durable` of them have reached the disk."""

    def __init__(self, folder: Path) -> None:
        self.num_durable = 0
        self._folder = folder
        self._unsynced_bytes = 0
        self._thread: threading.Thread | None = None

    def wrote(self, num_bytes: int, num_files: int) -> None:
        """Note that `num_bytes` more are written, which completes the first `num_files` files."""
        self._unsynced_bytes += num_bytes
        is_busy = self._thread is not None and self._thread.is_alive()
        if self._unsynced_bytes >= SYNC_BYTES and not is_busy:
            self._unsynced_bytes = 0
            self._thread = threading.Thread(target=self._sync, args=(num_files,), daemon=True)
            self._thread.start()

    def _sync(self, num_files: int) -> None:
        try:
            sync_files_of(self._folder)
        except OSError:
            # The sync at the end will say it.
            return
        self.num_durable = num_files
