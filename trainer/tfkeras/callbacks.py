"""Ties Keras's `fit` and `evaluate` to the ranks: rates, agreement, checkpoints, figures."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf

from trainer.common.errors import TrainingError
from trainer.common.position import Position, TakenStep
from trainer.common.throughput import Throughput
from trainer.tf.guard import Guard
from trainer.tf.job import Job
from trainer.tf.loader import Batch
from trainer.tf.resnet50 import cross_entropy


class WatchedLoss(keras.losses.Loss):
    """Cross entropy that keeps the mean of the last batch, where Keras shows an epoch's only."""

    def __init__(self, label_smoothing: float) -> None:
        super().__init__(name="loss")
        self._smoothing = label_smoothing
        self.last = tf.Variable(0.0, trainable=False)

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Give each picture's loss."""
        losses = cross_entropy(y_pred, tf.cast(y_true, tf.int64), self._smoothing)
        self.last.assign(tf.reduce_mean(losses))
        return losses


class Feed:
    """Hands batches to Keras and notes which pictures they hold.

    `raise_error` raises what ended the batches: tf.data makes another error of it.
    """

    def __init__(self, batches: Iterable[Batch]) -> None:
        self._batches = batches
        self._samples: deque[Sequence[int]] = deque()
        self._error: TrainingError | None = None

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Give images and labels of the batches that hold any; Keras asks some batches ahead."""
        try:
            for batch in self._batches:
                if batch.samples:
                    self._samples.append(batch.samples)
                    yield batch.images, batch.labels
        except TrainingError as error:
            self._error = error
            raise

    def next_samples(self) -> Sequence[int]:
        """Give the pictures of the next batch that is trained on."""
        return self._samples.popleft()

    def raise_error(self) -> None:
        """Raise the error that the batches ended with, if they did."""
        if self._error is not None:
            raise self._error


class Protocol(keras.callbacks.Callback):
    """Sets each step's rate, and lets the ranks agree on it, save and stop together.

    `position` is where training stands; `feed` holds the pictures of the epoch under way.
    """

    def __init__(
        self,
        job: Job,
        guard: Guard,
        throughput: Throughput,
        loss: WatchedLoss,
        position: Position,
    ) -> None:
        super().__init__()
        self._job = job
        self._guard = guard
        self._throughput = throughput
        self._loss = loss
        self.position = position
        self.feed = Feed(())

    def on_train_batch_begin(self, *_given: object, **_logs: object) -> None:
        """Set the rate."""
        self._job.optimizer.learning_rate = self._job.schedule.rate(self.position.step)

    def on_train_batch_end(self, *_given: object, **_logs: object) -> None:
        """Agree on the step; raises what Guard.step raises."""
        self._throughput.step(self._job.batch_size)
        before = self.position
        taken = TakenStep(
            step=before.step + 1,
            epoch=before.epoch + 1,
            batch=before.batch + 1,
            samples=self.feed.next_samples(),
        )
        self.position = before.after_batch(self._job.num_batches)
        num_images = self._job.options.batch_per_rank
        flags = tf.constant(self._guard.flags())
        sums = self._guard.add_up(num_images * self._loss.last, num_images, flags)
        self._guard.step(self.position, sums, taken=taken)
        self._throughput.add_host(self._guard.take_host_s())


class Evaluation(keras.callbacks.Callback):
    """Adds a metric's sums over all ranks, and lets the ranks agree on leaving meanwhile."""

    def __init__(self, job: Job, guard: Guard, position: Position) -> None:
        super().__init__()
        self._job = job
        self._guard = guard
        self._position = position

    def on_test_batch_end(self, batch: int, *_given: object, **_logs: object) -> None:
        """Agree on leaving where every rank has a batch; raises what Guard.check raises."""
        if batch < self._job.data.num_val // self._job.batch_size:
            self._guard.check(self._position)

    def figures(self, metrics: Mapping[str, keras.metrics.Mean]) -> dict[str, float]:
        """Give the metrics over all ranks' pictures, each counted once; a collective."""
        own = [[metric.total.numpy(), metric.count.numpy()] for metric in metrics.values()]
        sums = self._job.ranks.strategy.sum(tf.constant(own, tf.float64), "evaluation").numpy()
        return dict(zip(metrics, (sums[:, 0] / sums[:, 1]).tolist(), strict=True))
