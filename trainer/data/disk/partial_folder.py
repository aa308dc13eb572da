"""Makes a folder whole or not at all: one process fills it beside its place and renames it.

.NAME.partial/data     becomes NAME by one rename, when all is there
.NAME.partial/state    what a program wants to know after a kill
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from trainer.common.errors import TrainingError
from trainer.data.disk.locks import locked


class PartialFolder:
    """An unfinished folder; a context in which no other process works on it.

    Raises TrainingError where another one does, or where nothing can be written.
    """

    def __init__(self, target: Path) -> None:
        self.target = target.absolute()
        self._partial = self.target.with_name(f".{self.target.name}.partial")
        self.data = self._partial / "data"
        self.state = self._partial / "state"
        self._lock = ExitStack()

    def __enter__(self) -> Self:
        try:
            for folder in (self.data, self.state):
                folder.mkdir(parents=True, exist_ok=True)
            self._lock.enter_context(locked(self._partial, "wait for it, or choose another --to"))
        except OSError as error:
            raise self.unwritable(error) from None
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def empty(self) -> None:
        """Drop what was begun."""
        try:
            for folder in (self.data, self.state):
                shutil.rmtree(folder)
                folder.mkdir()
        except OSError as error:
            raise self.unwritable(error) from None

    def require_room(self, num_bytes: int) -> None:
        """Raise TrainingError where the disk has no room for so many bytes, less what is there."""
        free = shutil.disk_usage(self.data).free
        if num_bytes <= free:
            return
        there = sum(path.stat().st_size for path in self.data.rglob("*") if path.is_file())
        if num_bytes - there > free:
            message = (
                f"`{self.target.parent}` has {free / 1e6:,.0f} MB free, "
                f"and {(num_bytes - there) / 1e6:,.0f} MB are needed"
            )
            raise TrainingError(message, hint="free some space, or choose a folder on another disk")

    def finish(self) -> None:
        """Give the folder its name.

        Its files reach the disk when the system sees fit, as a copy's.
        """
        try:
            self.data.rename(self.target)
        except OSError as error:
            raise self.unwritable(error) from None
        shutil.rmtree(self._partial, ignore_errors=True)

    def forget_finished(self) -> None:
        """Remove what a kill in the last moment leaves beside a folder that is whole."""
        if not self.data.exists():
            shutil.rmtree(self._partial, ignore_errors=True)

    def unwritable(self, error: OSError) -> TrainingError:
        """Give the error for a disk that refused a write."""
        message = f"`{self.target}` cannot be written: {error.strerror}"
        return TrainingError(message, hint="free some space, or choose another folder")


def is_free(target: Path) -> bool:
    """Tell whether a folder can be made there: nothing is there, or an empty folder."""
    return not target.exists() or (target.is_dir() and not any(target.iterdir()))
