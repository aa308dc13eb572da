"""Decides which steps of a training are profiled; a framework's own profiler extends it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from trainer.common.errors import TrainingError
from trainer.common.messages import warn
from trainer.common.rundir import RunDir

# Kernels that a profile's table shows, the dearest first.
NUM_KERNELS = 10
# Steps that try kernels, make graphs and fill caches.
NUM_WARMUP = 10


class StepProfiler(ABC):
    """Profiles `num_steps` of rank 0 after a warm-up, and writes them to the output `profile`.

    `plan` is called before, with the steps that are to be taken: where they are few, the warm-up is
    shorter. `step` is called after each step. Where the training ends before, what there is by then is
    written. A profile that cannot be begun or written is told by a warning, as is one of no step;
    training goes on, or ends by the error that it has.
    """

    # Those by which a profile fails; a framework's own profiler adds its own.
    errors: tuple[type[Exception], ...] = (OSError, RuntimeError, TrainingError)

    def __init__(self, run_dir: RunDir, *, num_steps: int, say: Callable[[str], None]) -> None:
        self._run_dir = run_dir
        self._say = say
        self._num_steps = num_steps
        self._num_warmup_steps = 0
        self._seen = 0
        self._is_running = False

    def plan(self, num_left: int) -> None:
        """Choose the warm-up of a training of so many steps: at most NUM_WARMUP."""
        self._num_warmup_steps = min(NUM_WARMUP, max(0, num_left - self._num_steps))
        if self._num_steps and not num_left:
            warn("--profile: no step is left to take, so there is none to profile")
            self._num_steps = 0

    def __enter__(self) -> Self:
        """Begin at once where there is no warm-up."""
        self._begin_if_due()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End a profile that is under way."""
        self._end()

    def step(self) -> None:
        """Count a step."""
        self._seen += 1
        if self._seen == self._num_warmup_steps + self._num_steps:
            self._end()
        self._begin_if_due()

    @abstractmethod
    def _start(self) -> None:
        """Begin to profile."""

    @abstractmethod
    def _stop(self) -> None:
        """End the profile."""

    @abstractmethod
    def _write(self, folder: Path, steps: str) -> None:
        """Write trace.json, and kernels.txt with a table below a line of `steps`, such as "2 steps"."""

    def _begin_if_due(self) -> None:
        if self._num_steps and self._seen == self._num_warmup_steps:
            try:
                self._start()
            except self.errors as error:
                warn(f"the profile could not be begun: {error}")
                return
            self._is_running = True

    def _end(self) -> None:
        if not self._is_running:
            return
        self._is_running = False
        number = self._seen - self._num_warmup_steps
        steps = f"{number} step{'s' if number != 1 else ''}"
        try:
            self._stop()
            folder = self._run_dir.output("profile")
            self._write(folder, steps)
        except self.errors as error:
            warn(f"the profile could not be written: {error}")
            return
        self._say(f"profile of {steps}: {folder / 'kernels.txt'}, trace.json")
