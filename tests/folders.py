"""Writes and reads whole folders, so that a test compares them as one value."""

from __future__ import annotations

from pathlib import Path

from trainer.data.prepare.staging import RECEIPT


def make_folder(folder: Path, contents: dict[str, bytes]) -> Path:
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def read_folder(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def read_prepared(folder: Path) -> dict[str, bytes]:
    """What `prepare` has made of archives, but for its receipt, which is there."""
    found = read_folder(folder)
    del found[RECEIPT]
    return found
