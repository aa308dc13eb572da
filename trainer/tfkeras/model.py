"""Gives Keras's `fit` and `evaluate` the steps of the TensorFlow loop, and with them its arithmetic."""

from __future__ import annotations

import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainer.tf.guard import Guard
from trainer.tf.job import Job
from trainer.tf.steps import NUM_SCORES, Element, make_score, make_step

CAME_S = "came_s"


class RankModel(keras.Model):
    """Train a job's network by Keras's `fit` on one rank.

    Gradients, their mean over ranks, the update and the ranks' reports are one graph, which Keras runs.
    """

    def __init__(self, job: Job, guard: Guard) -> None:
        super().__init__(name="ranks")
        self.network = job.network
        self._step = make_step(job, guard)
        self._score = make_score(job)
        self._scores = tf.Variable(tf.zeros(NUM_SCORES, tf.float64), trainable=False)
        self.made_s = 0.0
        self.built = True
        # XLA compiles what the step says: Keras would have it compile the allreduce, too.
        # The optimizer has its loss scale already.
        self.compile(optimizer=job.optimizer, jit_compile=False, auto_scale_loss=False)

    def call(self, images: tf.Tensor, *, training: bool = False) -> tf.Tensor:
        """Give the network's scores."""
        return self.network(images, training=training)

    def train_step(self, data: Element) -> dict[str, Any]:
        """Take a step; logs when its batch had come, in seconds since 1970.

        They can be read without waiting for a device: Keras turns each log into a number. Python runs
        through this only while the graph is made, which `made_s` tells.
        """
        self.made_s = time.time()
        with tf.device("/CPU:0"), tf.control_dependencies(tf.nest.flatten(data)):
            came_s = tf.timestamp()
        self._step(data)
        return {CAME_S: came_s}

    def test_step(self, data: Element) -> dict[str, Any]:
        """Add a batch's scores up."""
        self._scores.assign_add(self._score(data))
        with tf.device("/CPU:0"):  # as in a step
            return {"steps": tf.constant(1.0)}

    def begin_scores(self) -> None:
        """Begin to add scores up."""
        self._scores.assign(tf.zeros(NUM_SCORES, tf.float64))

    def scores(self) -> np.ndarray:
        """Give the scores of all batches since then."""
        return self._scores.numpy()
