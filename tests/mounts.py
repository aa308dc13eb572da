"""Mounts a small file system, or skips with the words of what refused it; fills one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest


def mount_tmpfs(folder: Path, options: str) -> None:
    """Mount a tmpfs with these options; needs root."""
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.strip()}")


def fill(folder: Path, *, leave: int) -> Path:
    """Take all but so many bytes."""
    ballast = folder / "ballast"
    free = os.statvfs(folder)
    ballast.write_bytes(b"x" * (free.f_bavail * free.f_bsize - leave))
    return ballast


def unmount(folder: Path) -> None:
    """Take it away; lazily, as after a failed test some process may still hold it."""
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
