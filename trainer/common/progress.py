"""Logs metrics every so many steps; shows a progress line and writes the progress file on rank 0."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TextIO

from trainer.common.errors import TrainingError
from trainer.common.messages import warn
from trainer.common.metrics import Metrics
from trainer.common.position import Position, TakenStep
from trainer.common.throughput import Throughput
from trainer.common.whole_file import write_whole
from trainer.common.world import World

TERMINAL_EVERY_S = 0.2
LOG_EVERY_S = 10.0
FILE_EVERY_S = 1.0
SHOWN_WAIT = 0.02  # of a step


class Progress:
    """Takes each settled step's loss (`on_loss`); silent on every rank but 0.

    On a terminal one line is drawn anew, in a log a plain line comes every 10 s. `progress.json` lies
    beside the metrics, for `launch`. `num_steps` is for a training that ends before its epochs do.
    """

    def __init__(
        self,
        metrics: Metrics,
        world: World,
        throughput: Throughput,
        *,
        log_every: int,
        num_batches: int,
        num_epochs: int,
        num_steps: int | None = None,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics = metrics
        self._is_shown = world.is_main
        self._throughput = throughput
        self._log_every = log_every
        self._num_batches = num_batches
        self._num_epochs = num_epochs
        self._num_steps = num_epochs * num_batches if num_steps is None else num_steps
        self._stream = stream or sys.stdout
        self._clock = clock
        self._every_s = TERMINAL_EVERY_S if self._stream.isatty() else LOG_EVERY_S
        self._began_s = clock()
        self._shown_s = self._began_s
        self._first_step: int | None = None
        self._losses: list[float] = []
        self._accuracies: list[float] = []
        self._waited_s = 0.0
        self._file_s: float | None = None
        self._has_lost = False

    def on_loss(self, taken: TakenStep, loss: float, accuracy: float | None = None) -> None:
        """Take the mean loss of a step over all ranks, and the share of samples told right."""
        if self._first_step is None:
            self._first_step, self._began_s = taken.step, self._clock()
        self._losses.append(loss)
        if accuracy is not None:
            self._accuracies.append(accuracy)
        if taken.step % self._log_every == 0:
            epoch = taken.step / self._num_batches
            mean = sum(self._losses) / len(self._losses)
            told = self._throughput.take_parts()
            self._waited_s = told.get("data_wait_s", 0.0)
            if self._accuracies:
                told = {"accuracy": sum(self._accuracies) / len(self._accuracies), **told}
            self._metrics.log(step=taken.step, epoch=epoch, split="train", loss=mean, **told)
            self._losses.clear()
            self._accuracies.clear()
        now_s = self._clock()
        self._write(taken.step, now_s)
        if self._is_shown and now_s - self._shown_s >= self._every_s:
            self._shown_s = now_s
            self._show(self._line(taken, loss, accuracy, now_s, self._first_step))

    def on_epoch(
        self,
        position: Position,
        figures: Mapping[str, float],
        *,
        split: str,
        shown: Sequence[str] = (),
    ) -> None:
        """Take what an evaluation found, and the training's rate so far.

        The line names the figures of `shown`, or all of them where it is empty.
        """
        step, epoch = position.step, position.step / self._num_batches
        self._metrics.log(step=step, epoch=epoch, split=split, **figures)
        rate = self._throughput.samples_per_s
        if rate is not None:
            self._metrics.log(step=step, epoch=epoch, split="train", images_per_s=rate)
        told = [
            f"{split} {name} {value:.4f}"
            for name, value in figures.items()
            if not shown or name in shown
        ]
        speed = [] if rate is None else [f"{rate:,.0f} images/s"]
        width = len(str(self._num_epochs))
        head = f"epoch {position.epoch:{width}}/{self._num_epochs}"
        self.say("   ".join([head, *told, *speed]))

    def say(self, line: str) -> None:
        """Print a line on rank 0, over the progress line."""
        if self._is_shown:
            clear = "\r\033[K" if self._stream.isatty() else ""
            print(f"{clear}{line}", file=self._stream, flush=True)

    def _write(self, step: int, now_s: float) -> None:
        """Replace the progress file, now and then and after the last step (docs/run-directory.md)."""
        is_old = self._file_s is None or now_s - self._file_s >= FILE_EVERY_S
        if not self._is_shown or not (is_old or step == self._num_steps):
            return
        self._file_s = now_s
        told = {
            "done": step,
            "total": self._num_steps,
            "unit": "step",
            "samples_per_unit": self._throughput.samples_per_step,
            "units_per_epoch": self._num_batches,
        }
        try:
            write_whole(self._metrics.folder / "progress.json", json.dumps(told).encode())
        except TrainingError as error:
            if not self._has_lost:
                self._has_lost = True
                warn(f"progress is not told: {error}; training goes on")

    def _show(self, line: str) -> None:
        text = f"\r\033[K{line}" if self._stream.isatty() else f"{line}\n"
        self._stream.write(text)
        self._stream.flush()

    def _line(
        self, taken: TakenStep, loss: float, accuracy: float | None, now_s: float, first_step: int
    ) -> str:
        parts = [
            f"epoch {taken.epoch}/{self._num_epochs}",
            f"step {taken.batch}/{self._num_batches}",
            f"loss {loss:.4f}",
        ]
        if accuracy is not None:
            parts.append(f"accuracy {accuracy:.4f}")
        rate = self._throughput.current_per_s
        if rate is not None:
            parts.append(f"{rate:,.0f} images/s")
            waiting = self._waited_s * rate / (self._throughput.samples_per_step or math.inf)
            if waiting >= SHOWN_WAIT:
                parts.append(f"{min(waiting, 1):.0%} waiting for data")
        num_done = taken.step - first_step
        num_left = self._num_steps - taken.step
        if num_done:
            parts.append(f"{duration_text((now_s - self._began_s) / num_done * num_left)} left")
        return "   ".join(parts)


def duration_text(seconds: float) -> str:
    """Give `45 s`, `12 min` or `3 h 20 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02} min"
