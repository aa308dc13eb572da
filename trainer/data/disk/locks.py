"""Locks a folder or file against a second program."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainer.common.errors import TrainingError


@contextmanager
def locked(path: Path, hint: str) -> Iterator[None]:
    """Lock a folder or file; raises TrainingError if another program holds it.

    The lock ends with the program, however it ends. On Windows there is none.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"another program is working on `{path}`"
            raise TrainingError(message, hint=hint) from None
        yield
    finally:
        os.close(descriptor)
