"""Profiles some steps of a training: a trace for chrome://tracing or Perfetto, and the dearest kernels."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from trainer.common.profiling import NUM_KERNELS, StepProfiler
from trainer.common.rundir import RunDir
from trainer.common.whole_file import write_whole


class Profiler(StepProfiler):
    """Profiles by torch's own profiler."""

    def __init__(
        self,
        run_dir: RunDir,
        device: torch.device,
        *,
        num_steps: int,
        say: Callable[[str], None],
    ) -> None:
        super().__init__(run_dir, num_steps=num_steps, say=say)
        self._is_gpu = device.type == "cuda"

    def _start(self) -> None:
        activities = [ProfilerActivity.CPU]
        if self._is_gpu:
            activities.append(ProfilerActivity.CUDA)
        self._profile = profile(activities=activities, acc_events=True)
        self._profile.start()

    def _stop(self) -> None:
        self._profile.stop()

    def _write(self, folder: Path, steps: str) -> None:
        by = "self_device_time_total" if self._is_gpu else "self_cpu_time_total"
        table = self._profile.key_averages().table(sort_by=by, row_limit=NUM_KERNELS)
        with contextlib.suppress(FileNotFoundError):
            (folder / "trace.json").unlink()
        self._profile.export_chrome_trace(str(folder / "trace.json"))
        write_whole(folder / "kernels.txt", f"{steps}\n{table}\n".encode())
