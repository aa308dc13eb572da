"""Reads the small files of a run's folder, where its program may have put anything under any name."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import TypeVar

import msgspec

MOST_BYTES = 64 << 20
T = TypeVar("T")


def read_small(path: Path | str, most_bytes: int = MOST_BYTES) -> bytes:
    """Read a whole file; raises OSError, also for a pipe, a device or more than `most_bytes`."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags)
    with open(descriptor, "rb") as file:  # noqa: PTH123 (a descriptor)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no file", str(path))
        if status.st_size > most_bytes:
            size = f"it has {status.st_size} bytes, and {most_bytes} at most are read"
            raise OSError(errno.EFBIG, size, str(path))
        return file.read(most_bytes)


def read_json(path: Path, kind: type[T]) -> T:
    """Read and parse a file; raises OSError, msgspec.DecodeError."""
    return parse_json(read_small(path), kind)


def parse_json(content: bytes, kind: type[T]) -> T:
    """Parse JSON; raises msgspec.DecodeError, whatever is wrong with it."""
    try:
        return msgspec.json.decode(content, type=kind)
    except RecursionError:
        message = "it is nested too deeply"
    except UnicodeDecodeError:
        message = "it is no UTF-8"
    raise msgspec.DecodeError(message)
