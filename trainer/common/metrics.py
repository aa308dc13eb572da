"""Appends a run's metrics to a JSONL file, one whole line a write, from rank 0 only.

The same values go to the trackers (TensorBoard, MLflow) that the run has.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self

from trainer.common.errors import TrainingError
from trainer.common.messages import warn
from trainer.common.rundir import OUTPUT_HINT
from trainer.common.whole_file import write_whole
from trainer.common.world import World


@dataclass(frozen=True, kw_only=True)
class MainFigure:
    """The metric that a program is judged by; `goal` tells whether more or less of it is better."""

    split: str
    name: str
    goal: Literal["max", "min"]


class Tracker(Protocol):
    """Shows a run's values somewhere else, too."""

    def log(self, *, step: int, split: str, values: dict[str, float]) -> None:
        """Take the values of one step; must not block training for long."""
        ...

    def close(self, *, is_complete: bool) -> None:
        """Send what is left; `is_complete` where no error ended the training."""
        ...


class Metrics:
    """An open metrics file; on every rank but 0 it swallows what it is given.

    Each line is `{ts, step, epoch, split, name, value}`; `ts` is ISO 8601 in UTC. Lines of the
    program's main figure have its `goal`, too, by which readers know it. A line goes out in one write to a file opened for appending, so a reader never sees half of one
    and a kill loses none that was logged. A full disk costs lines, told once, and no training.
    """

    def __init__(
        self,
        path: Path,
        world: World,
        *,
        after_step: int = 0,
        only_evaluates: bool = False,
        only_split: str | None = None,
        trackers: Sequence[Tracker] = (),
        main: MainFigure | None = None,
        say: Callable[[str], None] = warn,
    ) -> None:
        """Open the file; its `folder` is made where it is missing, and TrainingError raised if it cannot be.

        Lines that come again are dropped: those of steps beyond `after_step`, where this training
        begins, and evaluations at it. They are of an attempt that got further than its checkpoint.
        With `only_evaluates` no steps come again: what a training wrote beyond `after_step` stays.
        With `only_split` lines of other splits stay: a program that is no training wrote none of them.
        """
        self.folder = path.parent
        self._fd: int | None = None
        self._trackers = trackers if world.is_main else ()
        self._main = main
        self._say = say
        self._has_lost = False
        self._is_torn = False
        if world.is_main:
            try:
                _keep_until(path, after_step, only_evaluates=only_evaluates, only_split=only_split)
            except (OSError, TrainingError) as error:
                say(f"metrics of the attempt before stay beside the new ones: {error}")
            self._fd = _open(path)

    def log(self, *, step: int, epoch: float, split: str, **values: float) -> None:
        """Write one line per named value; a value that is not finite is our mistake."""
        if self._fd is None:
            return
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        place = {"ts": now, "step": step, "epoch": round(epoch, 4), "split": split}
        for name, value in values.items():
            told = {**place, "name": name, "value": value, **self._goal(split, name)}
            line = json.dumps(told, allow_nan=False)
            self._append(self._fd, line.encode() + b"\n")
        for tracker in self._trackers:
            tracker.log(step=step, split=split, values=values)

    def close(self, *, is_complete: bool = True) -> None:
        """Close file and trackers; a second call does nothing."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
            for tracker in self._trackers:
                tracker.close(is_complete=is_complete)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(is_complete=error is None)

    def _goal(self, split: str, name: str) -> dict[str, str]:
        main = self._main
        return {"goal": main.goal} if main and (split, name) == (main.split, main.name) else {}

    def _append(self, fd: int, line: bytes) -> None:
        # A line that a full disk cut off ends before the next one begins.
        text = b"\n" + line if self._is_torn else line
        try:
            num_written = os.write(fd, text)
        except OSError as error:
            self._lose(str(error.strerror))
            return
        self._is_torn = num_written < len(text)
        if self._is_torn:
            self._lose("the disk is full")

    def _lose(self, why: str) -> None:
        if not self._has_lost:
            self._has_lost = True
            self._say(f"lines of metrics are lost: {why}; training goes on")


def _open(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as error:
        message = f"the metrics file `{path}` cannot be opened: {error.strerror}"
        raise TrainingError(message, hint=OUTPUT_HINT) from None


def _keep_until(path: Path, step: int, *, only_evaluates: bool, only_split: str | None) -> None:
    """Keep the lines of what is done at this step; the file is there whole or as it was."""
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return
    kept: list[bytes] = []
    for line in lines:
        with contextlib.suppress(ValueError, KeyError, TypeError):  # a line torn by a full disk
            place = json.loads(line)
            is_train = place["split"] == "train"
            comes_again = place["step"] > step and not only_evaluates
            is_others = only_split not in (None, place["split"])
            if is_others or (not comes_again and (place["step"] != step or is_train)):
                kept.append(line.rstrip(b"\n") + b"\n")  # a kill may have cut off its end
    write_whole(path, b"".join(kept))
