"""Keeps memory that a step's tensors or decoded pictures free for the next ones."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

# <malloc.h> of glibc: from which size on memory is a mapping of its own, and how much may lie free.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST, _LARGEST_OF_OLD_GLIBC = 1 << 30, 32 << 20
_NEVER = -1
# What a user says of glibc's memory, the last one among other things; then it stays as they say.
VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")
TUNABLES, OF_MALLOC = "GLIBC_TUNABLES", "glibc.malloc."


def keep_freed_memory(environ: Mapping[str, str]) -> None:
    """Have glibc keep what is freed; does nothing with another C library, or where a user has set it.

    By itself it maps each large tensor anew and unmaps it when it is freed, so that every step on the
    CPU has the kernel clear all pages of its activations (docs/benchmarks/training.md has what that
    takes). Threads that decode pictures map memory there, too, one of them at a time.
    """
    if any(environ.get(each) for each in VARIABLES) or OF_MALLOC in environ.get(TUNABLES, ""):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    if not mallopt(_MMAP_THRESHOLD, _LARGEST):
        mallopt(_MMAP_THRESHOLD, _LARGEST_OF_OLD_GLIBC)
    mallopt(_TRIM_THRESHOLD, _NEVER)
