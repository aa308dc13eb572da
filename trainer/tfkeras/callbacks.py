"""Ties Keras's `fit` and `evaluate` to the ranks: rates, agreement, checkpoints, figures."""

from __future__ import annotations

import time
from collections.abc import Mapping

import keras

from trainer.common.position import Position, TakenStep
from trainer.common.throughput import Throughput
from trainer.tf.guard import Guard
from trainer.tf.job import Job
from trainer.tf.loader import Reading
from trainer.tf.profiling import Profiler
from trainer.tfkeras.model import CAME_S


class Training(keras.callbacks.Callback):
    """Sets each step's rate, and lets the ranks agree on it, save and stop together.

    `position` is where training stands; `reading` holds the pictures of the epoch under way.
    """

    def __init__(
        self,
        job: Job,
        guard: Guard,
        throughput: Throughput,
        profiler: Profiler,
        *,
        reading: Reading,
        position: Position,
    ) -> None:
        super().__init__()
        self._job = job
        self._guard = guard
        self._throughput = throughput
        self._profiler = profiler
        self._reading = reading
        self.position = position
        self._began_s = 0.0

    def on_train_batch_begin(self, *_given: object, **_logs: object) -> None:
        """Set the rate, and tell the step what this rank has to say."""
        self._job.optimizer.learning_rate = self._job.schedule.rate(self.position.step)
        self._guard.begin_step()
        self._began_s = time.time()

    def on_train_batch_end(self, _batch: int, logs: Mapping[str, float]) -> None:
        """Agree on the step; raises what Guard.step raises."""
        if self.model.made_s < self._began_s:
            # The system's clock, as a graph has no other; it may be set back.
            self._throughput.add_wait(max(0.0, logs[CAME_S] - self._began_s))
        self._throughput.step(self._job.batch_size)
        before = self.position
        taken = TakenStep(
            step=before.step + 1,
            epoch=before.epoch + 1,
            batch=before.batch + 1,
            samples=self._reading.take(),
        )
        self.position = before.after_batch(self._job.num_batches)
        self._profiler.step()  # before a checkpoint, which is no part of a step
        self._guard.step(self.position, taken=taken)
        self._throughput.add_host(self._guard.take_host_s())


class Evaluation(keras.callbacks.Callback):
    """Lets the ranks agree on leaving while they evaluate."""

    def __init__(self, guard: Guard, position: Position) -> None:
        super().__init__()
        self._guard = guard
        self._position = position

    def on_test_batch_end(self, *_given: object, **_logs: object) -> None:
        """Agree after each batch, of which every rank has as many; raises what Guard.check raises."""
        self._guard.check(self._position)
