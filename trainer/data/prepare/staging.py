"""Tracks a data set that is being put together from archives, across kills and restarts.

    .NAME.partial/data                   becomes NAME by one rename, when everything is checked
    .NAME.partial/state/archives.json    which archives are unpacked, how far the others are
    NAME/prepared.json                   what the data set was made from

A file of the right size is whole if the machine has not restarted since: it was written front to
back. After a restart only those count that are known to have reached the disk.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from trainer.common.errors import TrainingError
from trainer.common.json_text import parse_json
from trainer.common.whole_file import write_whole
from trainer.data.disk.durability import boot_id, sync_files_of
from trainer.data.disk.partial_folder import PartialFolder, is_free

RECEIPT = "prepared.json"
_SCHEMA = 1
# Kept free on a disk beside what is written to it.
_SPARE_BYTES = 256 << 20


@dataclass(frozen=True, kw_only=True)
class Unpacked:
    """The state of one archive: its identity, and how many of its files are unpacked."""

    name: str
    archive_bytes: int
    archive_mtime_ns: int
    is_done: bool = False
    checksum: str = ""
    num_files: int = 0
    num_bytes: int = 0

    @classmethod
    def beginning(cls, path: Path) -> Unpacked:
        """Give an archive of which nothing is unpacked."""
        status = path.stat()
        return cls(
            name=path.name, archive_bytes=status.st_size, archive_mtime_ns=status.st_mtime_ns
        )

    def is_of(self, other: Unpacked) -> bool:
        """Tell whether both describe the same, unchanged archive."""
        mine = (self.name, self.archive_bytes, self.archive_mtime_ns)
        return mine == (other.name, other.archive_bytes, other.archive_mtime_ns)


class Staging:
    """An unfinished data set; a context in which no other program works on it."""

    def __init__(self, target: Path, dataset: str) -> None:
        self._partial = PartialFolder(target)
        self.folder = self._partial.data
        self._state = self._partial.state / "archives.json"
        self._dataset = dataset
        self._archives: dict[str, Unpacked] = {}
        self._has_restarted = False

    def __enter__(self) -> Self:
        self._partial.__enter__()
        self._read_state()
        return self

    def __exit__(self, *_: object) -> None:
        self._partial.__exit__()

    def begin(self, path: Path, roots: tuple[str, ...]) -> tuple[Unpacked, int | None]:
        """Give an archive's state, and how many of its files can be trusted (None: all).

        `roots` are what it unpacks to: they are emptied where they come from another archive.
        """
        fresh = Unpacked.beginning(path)
        known = self._archives.get(path.name)
        if known and known.is_of(fresh):
            return known, known.num_files if self._has_restarted else None
        for root in roots:
            _remove(self.folder / root)
        self.note(fresh)
        return fresh, 0

    def note(self, unpacked: Unpacked) -> None:
        """Save an archive's state; `num_files` of an unfinished one are on the disk for good."""
        self._archives[unpacked.name] = unpacked
        self._write_state()

    def forget(self, path: Path) -> None:
        """Have an archive unpacked from its beginning next time, and what it unpacked to removed."""
        del self._archives[path.name]
        self._write_state()

    def require_room(self, num_bytes: int) -> None:
        """Raise TrainingError where so many bytes, less what is there already, have no room."""
        self._partial.require_room(num_bytes + _SPARE_BYTES)

    def finish(self, roots: tuple[str, ...]) -> tuple[int, int]:
        """Put the folder in its place; gives its number of files and bytes, without the receipt.

        What else lies in the folder is from an earlier, interrupted program, and goes.
        """
        for path in list(self.folder.iterdir()):
            if path.name not in roots:
                _remove(path)
        num_files = sum(each.num_files for each in self._archives.values())
        num_bytes = sum(each.num_bytes for each in self._archives.values())
        receipt = {
            "schema": _SCHEMA,
            "dataset": self._dataset,
            "archives": [
                {"name": each.name, "bytes": each.archive_bytes, "checksum": each.checksum}
                for _, each in sorted(self._archives.items())
            ],
            "files": num_files,
            "bytes": num_bytes,
        }
        write_whole(self.folder / RECEIPT, (json.dumps(receipt, indent=1) + "\n").encode())
        sync_files_of(self.folder)
        self._partial.finish()
        sync_files_of(self._partial.target.parent)
        return num_files, num_bytes

    def _read_state(self) -> None:
        try:
            state: Any = parse_json(self._state.read_bytes())
            if state["schema"] != _SCHEMA or state["dataset"] != self._dataset:
                return
            archives = [Unpacked(**each) for each in state["archives"]]
            self._has_restarted = state["boot"] is None or state["boot"] != boot_id()
        except (OSError, ValueError, KeyError, TypeError):
            # Without it every archive starts anew.
            return
        self._archives = {each.name: each for each in archives}

    def _write_state(self) -> None:
        state = {
            "schema": _SCHEMA,
            "dataset": self._dataset,
            # Once restarted, files of the right size from before may lie among those written since.
            "boot": None if self._has_restarted else boot_id(),
            "archives": [dataclasses.asdict(each) for each in self._archives.values()],
        }
        write_whole(self._state, json.dumps(state).encode())


def is_prepared(target: Path, dataset: str, *, beside: str = "") -> tuple[int, int] | None:
    """Give files and bytes of a data set that is whole already, None where there is nothing yet.

    The file `beside` the pictures is none of them. Raises TrainingError where something else lies there, or where files were lost since.
    """
    if is_free(target):
        return None
    try:
        receipt: Any = parse_json((target / RECEIPT).read_bytes())
        stated = (receipt["files"], receipt["bytes"]) if receipt["dataset"] == dataset else None
    except (OSError, ValueError, KeyError, TypeError):
        stated = None
    if stated is None:
        message = f"`{target}` exists already, and is not a prepared {dataset}"
        raise TrainingError(message, hint="choose another --to, or remove it")
    num_files, num_bytes = count_files(target)
    others = [target / name for name in (RECEIPT, beside) if name and (target / name).is_file()]
    found = (num_files - len(others), num_bytes - sum(each.stat().st_size for each in others))
    if found != stated:
        message = (
            f"`{target}` was prepared with {stated[0]} files of {stated[1]} bytes, "
            f"and has {found[0]} of {found[1]} now"
        )
        raise TrainingError(message, hint="remove it, then type the same again")
    return found


def count_files(folder: Path) -> tuple[int, int]:
    """Give the number of files below a folder and their bytes."""
    num_files = num_bytes = 0
    folders = [os.fspath(folder)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    num_files += 1
                    num_bytes += entry.stat(follow_symlinks=False).st_size
    return num_files, num_bytes


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
