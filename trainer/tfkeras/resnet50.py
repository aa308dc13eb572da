"""Trains ResNet-50 with Keras on ImageNet, or on any pictures in class folders, on any ranks.

    launch shell tensorflow -- python -m trainer.tfkeras.resnet50 \\
        --data synthetic --image-size 64 --epochs 4
    launch run resnet50-keras-synthetic

The network, the options and the recipe of trainer.tf.resnet50, with Keras 3's `fit` in place of a
loop: a model whose step averages gradients, and callbacks that agree, save and stop. A file of your own
calls `main` with a function that builds its network (docs/own-model.md).
"""

from __future__ import annotations

import functools
import sys

import numpy as np

from trainer.common.position import Position
from trainer.common.throughput import Throughput
from trainer.tf.guard import Guard
from trainer.tf.job import Job, Options
from trainer.tf.loader import Reading
from trainer.tf.profiling import Profiler
from trainer.tf.program import run_program
from trainer.tfkeras.callbacks import Evaluation, Training
from trainer.tfkeras.model import RankModel


class Fit:
    """Lets Keras's `fit` and `evaluate` take the steps."""

    def __init__(self, job: Job, guard: Guard, throughput: Throughput, profiler: Profiler) -> None:
        self._job = job
        self._guard = guard
        self._throughput = throughput
        self._profiler = profiler
        self._model = RankModel(job, guard)

    def train_epoch(self, reading: Reading, position: Position) -> Position:
        """Train on what is left of the epoch."""
        training = Training(
            self._job,
            self._guard,
            self._throughput,
            self._profiler,
            reading=reading,
            position=position,
        )
        self._model.fit(
            reading.dataset,
            initial_epoch=position.epoch,
            epochs=position.epoch + 1,
            steps_per_epoch=self._job.num_batches - position.batch,
            callbacks=[training],
            shuffle=False,  # the batches come in their order
            verbose=0,
        )
        return training.position

    def score(self, reading: Reading, position: Position) -> np.ndarray:
        """Add up the scores of all validation batches."""
        self._model.begin_scores()
        self._model.evaluate(
            reading.dataset,
            steps=self._job.num_val_batches,
            callbacks=[Evaluation(self._guard, position)],
            verbose=0,
        )
        return self._model.scores()


# Takes argv, and by name what run_program takes: program, description, build, defaults.
main = functools.partial(
    run_program, Options, Fit, program="trainer.tfkeras.resnet50", description=__doc__
)

if __name__ == "__main__":
    sys.exit(main())
