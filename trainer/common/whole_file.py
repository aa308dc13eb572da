"""Writes a file whole or not at all."""

from __future__ import annotations

from pathlib import Path

from trainer.common.errors import TrainingError


def write_whole(path: Path, data: bytes) -> None:
    """Write the file beside its place, then put it there; raises TrainingError where the disk refuses."""
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
        hint = "free some space, or correct the folder's permissions"
        raise TrainingError(message, hint=hint) from None
