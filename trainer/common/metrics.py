"""Appends a run's metrics to a JSONL file, one whole line a write, from rank 0 only."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from trainer.common.world import World


class Metrics:
    """An open metrics file; on every rank but 0 it swallows what it is given.

    Each line is `{ts, step, epoch, split, name, value}`; `ts` is ISO 8601 in UTC. A line
    goes out in one write to a file opened for appending, so a reader never sees half of one
    and a kill loses none that was logged.
    """

    def __init__(self, path: Path, world: World) -> None:
        """Start an empty file; the folder is made where it is missing."""
        self._fd: int | None = None
        if world.is_main:
            path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
            self._fd = os.open(path, flags, 0o644)

    def log(self, *, step: int, epoch: float, split: str, **values: float) -> None:
        """Write one line per named value; a value that is no finite number is our mistake."""
        if self._fd is None:
            return
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        place = {"ts": now, "step": step, "epoch": round(epoch, 4), "split": split}
        for name, value in values.items():
            line = json.dumps({**place, "name": name, "value": value}, allow_nan=False)
            os.write(self._fd, line.encode() + b"\n")

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
