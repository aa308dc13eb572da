"""Profiles some steps of a training: a trace for chrome://tracing or Perfetto, and the dearest kernels."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Self

import torch
from torch.profiler import ProfilerActivity, profile

from trainer.common.messages import warn
from trainer.common.rundir import RunDir
from trainer.common.whole_file import write_whole

NUM_KERNELS = 10
# Steps that try kernels and fill caches.
NUM_WARMUP = 10


class Profiler:
    """Profiles `num_steps` of rank 0 after a warm-up, and writes them to the output `profile`.

    `plan` is called before, with the steps that are to be taken: where they are few, the warm-up is
    shorter. `step` is called after each step. Where the training ends before, what there is by then is
    written. A profile that cannot be written is told by a warning, as is one of no step; training goes
    on.
    """

    def __init__(
        self,
        run_dir: RunDir,
        device: torch.device,
        *,
        num_steps: int,
        say: Callable[[str], None],
    ) -> None:
        self._run_dir = run_dir
        self._device = device
        self._num_steps = num_steps
        self._num_warmup_steps = 0
        self._say = say
        self._seen = 0
        self._profile: profile | None = None

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

    def _begin_if_due(self) -> None:
        if self._num_steps and self._seen == self._num_warmup_steps:
            activities = [ProfilerActivity.CPU]
            if self._device.type == "cuda":
                activities.append(ProfilerActivity.CUDA)
            self._profile = profile(activities=activities, acc_events=True)
            self._profile.start()

    def _end(self) -> None:
        ended, self._profile = self._profile, None
        if ended is None:
            return
        ended.stop()
        num_steps = self._seen - self._num_warmup_steps
        steps = f"{num_steps} step{'s' if num_steps != 1 else ''}"
        by = "self_device_time_total" if self._device.type == "cuda" else "self_cpu_time_total"
        table = ended.key_averages().table(sort_by=by, row_limit=NUM_KERNELS)
        try:
            folder = self._run_dir.output("profile")
            with contextlib.suppress(FileNotFoundError):
                (folder / "trace.json").unlink()
            ended.export_chrome_trace(str(folder / "trace.json"))
            write_whole(folder / "kernels.txt", f"{steps}\n{table}\n".encode())
        except (OSError, RuntimeError) as error:
            warn(f"the profile could not be written: {error}")
            return
        self._say(f"profile of {steps}: {folder / 'kernels.txt'}, trace.json")
