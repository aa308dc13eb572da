"""Writes checkpoints off the training thread, one at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Literal

from trainer.common.checkpoint import CheckpointFolder
from trainer.common.errors import TrainingError

OnSaveError = Literal["continue", "stop"]


class SaveFailure(IntEnum):
    """Reason to stop training for a checkpoint; its number travels in the ranks' reports."""

    NONE = 0
    DISK = 1
    STATE = 2  # weights that are not finite are worth no checkpoint


class Saver:
    """A checkpoint folder with a thread that writes to it; only rank 0 has one.

    A checkpoint that cannot be written is reported by `warn`. With `on_error` continue training
    goes on; with stop `failure` says so, and the ranks end together (trainer.common.agreement).
    """

    def __init__(
        self, folder: CheckpointFolder, *, on_error: OnSaveError, warn: Callable[[str], None]
    ) -> None:
        self._folder = folder
        self._on_error = on_error
        self._warn = warn
        self._defect: Exception | None = None
        self._thread: threading.Thread | None = None
        self.num_saved = 0
        self.num_failed = 0
        self.failure = SaveFailure.NONE
        self.saved_step: int | None = None

    def save(
        self, step: int, files: Callable[[], Mapping[str, bytes]], about: Mapping[str, Any]
    ) -> None:
        """Begin to write; waits for the checkpoint before.

        `files` turns a snapshot that nobody changes any more into bytes, on the thread; where it
        raises TrainingError nothing is written, and the ranks stop whatever `on_error` says. Who calls
        `wait` before taking the snapshot has no more than one in memory.
        """
        self.wait()
        # Not a daemon: a normal end of the process waits for the last checkpoint.
        self._thread = threading.Thread(target=self._write, args=(step, files, about))
        self._thread.start()

    def wait(self) -> None:
        """Wait until what was begun is on disk (then `saved_step` is its step) or has failed."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._defect is not None:
            raise self._defect

    def _write(
        self, step: int, files: Callable[[], Mapping[str, bytes]], about: Mapping[str, Any]
    ) -> None:
        try:
            self._try_write(step, files, about)
        except Exception as error:  # noqa: BLE001 - the edge of this thread; `wait` raises it
            self._defect = error

    def _try_write(
        self, step: int, files: Callable[[], Mapping[str, bytes]], about: Mapping[str, Any]
    ) -> None:
        try:
            self._folder.write(step, files(), about)
        except OSError as error:
            self.num_failed += 1
            is_fatal = self._on_error == "stop"
            if is_fatal:
                self.failure = SaveFailure.DISK
            rest = "" if is_fatal else "; training goes on"
            self._warn(f"the checkpoint of step {step} could not be written: {error}{rest}")
            return
        except TrainingError as error:  # what `files` refuses is worth no checkpoint at all
            self.num_failed += 1
            self.failure = SaveFailure.STATE
            self._warn(f"no checkpoint of step {step} is written: {error}")
            return
        self.num_saved += 1
        self.saved_step = step
        try:
            self._folder.remove_old(self._warn)
        except OSError as error:
            self._warn(f"old checkpoints could not be removed: {error}")
