"""Horovod's callbacks for Keras 3: broadcast, averaged metrics, warm-up and schedule of the rate."""

from __future__ import annotations

import warnings
from typing import Any

import horovod.tensorflow as hvd
import keras
import tensorflow as tf
from horovod._keras import callbacks as impl


def mend() -> None:
    """Replace the methods that call Keras 2; the classes of both Horovods for Keras inherit them."""
    impl.BroadcastGlobalVariablesCallbackImpl.on_batch_end = broadcast_once
    impl.MetricAverageCallbackImpl._average_metrics_in_place = average_metrics
    schedule = impl.LearningRateScheduleCallbackImpl
    schedule._adjust_learning_rate = adjust_learning_rate
    schedule._restore_momentum_if_needed = lambda self: None
    schedule.on_epoch_end = log_learning_rate
    impl.LearningRateWarmupCallbackImpl.on_epoch_end = end_epoch_of_warmup


def broadcast_once(self: Any, batch: int, logs: dict[str, Any] | None = None) -> None:
    """Give all ranks the root's weights and optimizer, once: after the first batch both exist."""
    if self.broadcast_done:
        return
    # Not `variables`: these also hold metrics and the states of random numbers, each rank's own.
    shared = [each for each in self.model.weights if each.ref() not in self._local_vars]
    optimizer = self.model.optimizer
    with tf.device(self.device):
        hvd.broadcast_variables(shared, root_rank=self.root_rank)
        hvd.broadcast_variables(optimizer.variables, root_rank=self.root_rank)
    self.broadcast_done = True


def average_metrics(self: Any, logs: dict[str, Any] | None = None) -> None:
    """Put the mean over ranks in place of each metric; in order of names, as every rank must."""
    for name, value in sorted((logs or {}).items()):
        mean = hvd.allreduce(tf.constant(value, tf.float64), device_dense=self.device)
        logs[name] = float(mean)


def learning_rate(model: Any) -> float:
    return float(keras.ops.convert_to_numpy(model.optimizer.learning_rate))


def adjust_learning_rate(self: Any, epoch: float) -> None:
    optimizer = self.model.optimizer
    optimizer.learning_rate = self.initial_lr * self.multiplier(epoch)
    if self.momentum_correction and getattr(optimizer, "momentum", 0):
        self.momentum_correction = False
        message = "the momentum is not corrected for the changing learning rate: Keras 3 fixes it"
        warnings.warn(message, stacklevel=2)


def log_learning_rate(self: Any, epoch: int, logs: dict[str, Any] | None = None) -> None:
    if logs is not None:
        logs["lr"] = learning_rate(self.model)


def end_epoch_of_warmup(self: Any, epoch: int, logs: dict[str, Any] | None = None) -> None:
    log_learning_rate(self, epoch, logs)
    if epoch == self.end_epoch - 1 and self.verbose > 0 and hvd.rank() == 0:
        rate = learning_rate(self.model)
        print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {rate:g}.")
