"""Reads and writes files at an offset on every operating system."""

from __future__ import annotations

import errno
import os
import sys

# No link is followed, no line end changed, where the system knows of such.
OPEN_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def read_at(descriptor: int, length: int, offset: int) -> bytes:
    """Read a piece of a file; less at its end."""
    if sys.platform == "win32":
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.read(descriptor, length)
    return os.pread(descriptor, length, offset)


def write_at(descriptor: int, chunk: memoryview, offset: int) -> int:
    """Write a piece of a file; gives how much of it was written."""
    if sys.platform == "win32":
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.write(descriptor, chunk)
    return os.pwrite(descriptor, chunk, offset)


def hint_for(error: OSError, otherwise: str) -> str:
    """Give the hint of an error; `otherwise` if it is not about too many open files."""
    if error.errno == errno.EMFILE:
        return "ulimit -n 1024, then type the same again: this shell may open too few files"
    if error.errno == errno.ENFILE:
        return "end programs that have many files open on this machine, then type the same again"
    return otherwise
