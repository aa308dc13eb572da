"""Trains ResNet-50 on ImageNet, or on any pictures in class folders, on any number of ranks.

    launch shell tensorflow -- python -m trainer.tf.resnet50 \\
        --data synthetic --image-size 64 --epochs 4
    launch run resnet50-tf-synthetic

A loop of one's own in TensorFlow, with Horovod's gradient tape or TensorFlow's MultiWorkerMirrored
collectives. `--data` takes a folder (docs/training-tensorflow.md), `synthetic` for a small set of JPEGs
that is made on the spot, or `random` for one batch of noise on the device. The recipe is that of Goyal et
al. 2017 (arXiv 1706.02677): the learning rate grows with the batch of all ranks, after a warm-up. A file of
your own calls `main` with a function that builds its network (docs/own-model.md).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from trainer.common.position import Position, TakenStep
from trainer.common.throughput import Throughput
from trainer.tf.guard import Guard
from trainer.tf.job import Job, Options
from trainer.tf.loader import Reading
from trainer.tf.profiling import Profiler
from trainer.tf.program import run_program
from trainer.tf.steps import NUM_SCORES, Element, make_score, make_step


class Loop:
    """Takes steps one by one, each as one graph."""

    def __init__(self, job: Job, guard: Guard, throughput: Throughput, profiler: Profiler) -> None:
        self._job = job
        self._guard = guard
        self._throughput = throughput
        self._profiler = profiler
        self._step = tf.function(make_step(job, guard), autograph=False)
        self._score = tf.function(make_score(job), autograph=False)

    def train_epoch(self, reading: Reading, position: Position) -> Position:
        """Take one step per global batch that is left of the epoch; each rank computes its part."""
        job, guard, throughput = self._job, self._guard, self._throughput
        batches = iter(reading.dataset)
        for _ in range(job.num_batches - position.batch):
            element = self._next(batches)
            job.optimizer.learning_rate = job.schedule.rate(position.step)
            guard.begin_step()
            self._step(element)

            throughput.step(job.batch_size)
            taken = TakenStep(
                step=position.step + 1,
                epoch=position.epoch + 1,
                batch=position.batch + 1,
                samples=reading.take(),
            )
            position = position.after_batch(job.num_batches)
            self._profiler.step()  # before a checkpoint, which is no part of a step
            guard.step(position, taken=taken)
            throughput.add_host(guard.take_host_s())
        return position

    def _next(self, batches: Iterator[Element]) -> Element:
        with self._throughput.waiting():
            return next(batches)

    def score(self, reading: Reading, position: Position) -> np.ndarray:
        """Add up the scores of all validation batches."""
        totals = np.zeros(NUM_SCORES, np.float64)
        for _, element in zip(range(self._job.num_val_batches), reading.dataset, strict=False):
            totals += self._score(element).numpy()
            self._guard.check(position)
        return totals


# Takes argv, and by name what run_program takes: program, description, build, defaults.
main = functools.partial(
    run_program, Options, Loop, program="trainer.tf.resnet50", description=__doc__
)

if __name__ == "__main__":
    sys.exit(main())
