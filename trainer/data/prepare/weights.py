"""Puts the pretrained weights that a data set's job begins with beside its pictures, checked."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from trainer.common.errors import TrainingError
from trainer.data.prepare.published import Archive

_BLOCK_BYTES = 1 << 20


def weights_name(archive: Archive) -> str:
    """Give the file's name beside the pictures: `resnet18.pth` of `resnet18-f37072fd.pth`."""
    return f"{archive.name.partition('-')[0]}.pth"


def by_hand(archive: Archive, folder: Path) -> str:
    """Word where the file is to be had, how it is checked, and where it has to be put."""
    return f"get {archive.urls[0]} (SHA-256 {archive.checksum.digest}) into {folder}"


def require_weights(archive: Archive, source: Path) -> None:
    """Raise TrainingError where the folder of archives lacks the weights, or has other ones."""
    path = source / archive.name
    if not path.is_file():
        message = f"`{source}` holds no `{archive.name}`, the pretrained weights"
        hint = f"--download gets it; or {by_hand(archive, source)}; or --no-weights"
        raise TrainingError(message, hint=hint)
    require_checksum(path, archive, shown=path)


def place_weights(archive: Archive, source: Path, folder: Path) -> None:
    """Copy the weights into the data set's folder under their name; the same command may do it again.

    Raises TrainingError where their checksum is another than the published one.
    """
    made = folder / weights_name(archive)
    partial = folder / f".{made.name}.part"
    try:
        shutil.copyfile(source / archive.name, partial)
        require_checksum(partial, archive, shown=source / archive.name)
        with partial.open("r+b") as file:
            os.fsync(file.fileno())
        partial.replace(made)
    finally:
        partial.unlink(missing_ok=True)


def require_checksum(path: Path, archive: Archive, *, shown: Path) -> None:
    """Raise TrainingError where the file is not the published one; `shown` is what errors call it."""
    hashed = hashlib.new(archive.checksum.algorithm, usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            hashed.update(block)
    if hashed.hexdigest() != archive.checksum.digest:
        message = (
            f"the {archive.checksum.algorithm.upper()} of `{shown}` is {hashed.hexdigest()}, "
            f"and that of {archive.name} {archive.checksum.digest}"
        )
        hint = f"take it away, and --download gets it; or {by_hand(archive, shown.parent)}"
        raise TrainingError(message, hint=hint)
