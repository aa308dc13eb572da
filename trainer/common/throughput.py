"""Measures samples per second over the steps of training, warm-up left out."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager


class Throughput:
    """Global samples divided by the wall time of the same steps.

    `step` takes the samples of all ranks together, so the rate is the whole job's. What lies
    between two `training` blocks (evaluation, saving) counts neither as time nor as samples,
    nor do the first `num_warmup_steps`. `synchronise` waits until the device has finished
    what it was given; without it a GPU's queue would be timed, not its work.
    """

    def __init__(
        self,
        *,
        num_warmup_steps: int,
        synchronise: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._warmup_left = num_warmup_steps
        self._synchronise = synchronise
        self._clock = clock
        self._began = 0.0
        self._samples = 0
        self._seconds = 0.0
        self._num_steps = self._num_samples = 0
        self._parts: dict[str, float] = {}
        self._told_steps = 0
        self._waited_s: float | None = None
        self._steps_s = 0.0
        self._stepped_s: float | None = None  # when the last step of a `training` block ended
        self._also: Callable[[], Mapping[str, float]] = dict

    @contextmanager
    def training(self) -> Generator[None]:
        """Time the steps taken inside."""
        self._began = self._now()
        self._stepped_s = self._clock()
        yield
        self._stepped_s = None
        if self._warmup_left == 0:
            self._seconds += self._now() - self._began

    @contextmanager
    def waiting(self) -> Generator[None]:
        """Time the wait for the next batch; does not wait for the device."""
        began_s = self._clock()
        yield
        self.add_wait(self._clock() - began_s)

    def add_wait(self, seconds: float) -> None:
        """Count a wait for the next batch that was timed elsewhere."""
        self._waited_s = (self._waited_s or 0.0) + seconds
        self._add("data_wait_s", seconds)

    def add_host(self, seconds: float) -> None:
        """Count what the host did for a step while the device had nothing of it to do."""
        self._add("host_s", seconds)

    def also(self, take: Callable[[], Mapping[str, float]]) -> None:
        """Let `take_parts` give what `take` gives, too: means of a step since it was asked last.

        Where that is anything, `step_s` is beside it: the whole step, from the end of the one before.
        """
        self._also = take

    def _add(self, part: str, seconds: float) -> None:
        self._parts[part] = self._parts.get(part, 0.0) + seconds

    def take_parts(self) -> dict[str, float]:
        """Give the parts of a step that were timed, in seconds of a step since this was asked last."""
        num_steps = self._num_steps - self._told_steps
        if num_steps == 0:
            return {}
        told = {part: seconds / num_steps for part, seconds in self._parts.items()}
        if also := self._also():
            told |= {**also, "step_s": self._steps_s / num_steps}
        self._parts, self._told_steps, self._steps_s = {}, self._num_steps, 0.0
        return told

    def step(self, num_samples: int) -> None:
        """Count one optimizer step over `num_samples` of all ranks together."""
        now_s = self._clock()
        if self._stepped_s is not None:
            self._steps_s += now_s - self._stepped_s
            self._stepped_s = now_s
        self._num_steps += 1
        self._num_samples += num_samples
        if self._warmup_left == 0:
            self._samples += num_samples
            return
        self._warmup_left -= 1
        if self._warmup_left == 0:
            self._began = self._now()

    @property
    def samples_per_s(self) -> float | None:
        """Give samples/s up to the last finished `training` block; None during the warm-up."""
        return self._samples / self._seconds if self._samples and self._seconds else None

    @property
    def current_per_s(self) -> float | None:
        """Give samples/s inside a `training` block, for progress lines, without waiting for the device."""
        seconds = self._seconds + self._clock() - self._began
        return self._samples / seconds if self._samples and seconds > 0 else None

    @property
    def data_wait_s(self) -> float | None:
        """Mean seconds of a step's wait for its batch, the warm-up's included; None where none was timed."""
        if self._waited_s is None or not self._num_steps:
            return None
        return self._waited_s / self._num_steps

    @property
    def samples_per_step(self) -> float | None:
        """Mean samples of a step, the warm-up's included; None before the first."""
        return self._num_samples / self._num_steps if self._num_steps else None

    def _now(self) -> float:
        self._synchronise()
        return self._clock()
