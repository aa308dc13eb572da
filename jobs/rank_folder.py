"""The folder that a node's ranks run in: a copy of the code."""

from __future__ import annotations

import os

CHUNK = 1 << 20


def copy_tree(source: str, target: str, *, leave_out: tuple[str, ...] = ("outputs",)) -> None:
    """Copy a folder; links stay links, and of its top the names of `leave_out` stay behind.

    `outputs` does so since a link takes its place.
    """
    os.makedirs(target)
    folders = [""]
    while folders:
        prefix = folders.pop()
        for entry in os.scandir(f"{source}/{prefix}"):
            name = prefix + entry.name
            if name in leave_out:
                continue
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), f"{target}/{name}")
            elif entry.is_dir():
                os.mkdir(f"{target}/{name}")
                folders.append(f"{name}/")
            else:
                _copy_file(entry.path, f"{target}/{name}")


def _copy_file(source: str, target: str) -> None:
    with open(source, "rb") as read:
        mode = os.fstat(read.fileno()).st_mode & 0o777
        with open(
            os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode | 0o200), "wb"
        ) as write:
            while chunk := read.read(CHUNK):
                write.write(chunk)
