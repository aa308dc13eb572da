"""Finds the active runs of a workspace folder (docs/run-directory.md)."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def find_running(workspace: Path) -> list[str]:
    """List the ids of the runs whose supervisor lives, oldest first; none without a workspace."""
    locks = sorted(workspace.glob("runs/*/supervisor.lock"))
    return [lock.parent.name for lock in locks if _is_held(lock)]


def _is_held(lock: Path) -> bool:
    try:
        fd = os.open(lock, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        # Shared, so that two who look at once do not see each other.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(fd)
