"""Writes a file whole or not at all."""

from __future__ import annotations

from pathlib import Path

from trainer.common.errors import TrainingError


def write_whole(path: Path, data: bytes) -> None:
    """Write the file beside its place, then put it there; raises TrainingError on a full disk."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            partial.write_bytes(data)
            partial.replace(path)
        except OSError:
            partial.unlink(missing_ok=True)
            raise
    except OSError as error:
        message = f"`{path}` cannot be written: {error.strerror}"
        raise TrainingError(message, hint="free some space and run it again") from None
