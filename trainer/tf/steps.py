"""Makes the graphs of a training step and of an evaluation's step, for a loop and for `fit` alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from trainer.tf.guard import Guard
from trainer.tf.job import Job

# What a step takes: an element of a source's dataset.
Element = Any
NUM_TOP = 5
# Numbers of an evaluation: sum of losses, right ones, those among the top, and pictures.
NUM_SCORES = 4


def make_step(job: Job, guard: Guard) -> Callable[[Element], None]:
    """Make a step for a graph: learn from a batch, and add up the ranks' reports on it."""
    learn = make_learning(job)

    def step(element: Element) -> None:
        loss = learn(*job.data.train.batch_of(element))
        guard.add_up(loss, job.options.batch_per_rank)

    return step


def make_learning(job: Job) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Make what learns from pictures and labels in a graph: gradients, their mean over ranks, the update.

    It gives the mean loss of this rank's pictures. XLA compiles the network and with it its gradients; what talks to other ranks stays outside.
    """
    options, network, optimizer = job.options, job.network, job.optimizer
    weights = [variable.value for variable in network.trainable_variables]

    @tf.function(jit_compile=options.xla, autograph=False)
    def mean_loss(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        scores = in_fp32(network(images, training=True))
        loss = tf.reduce_mean(cross_entropy(scores, labels, options.label_smoothing))
        # Regularizers of a network of one's own; of a vector its sum, as by `fit`.
        regularizers = [tf.reduce_sum(in_fp32(each)) for each in network.losses]
        return tf.add_n([loss, *regularizers]) if regularizers else loss

    def learn(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = mean_loss(images, labels)
            scaled = optimizer.scale_loss(loss)
        gradients = job.ranks.strategy.gradients(tape, scaled, weights)
        optimizer.apply(gradients, network.trainable_variables)
        return loss

    return learn


def make_score(job: Job) -> Callable[[Element], tf.Tensor]:
    """Make what gives NUM_SCORES sums over a batch's pictures; places without one do not count."""
    num_top = min(NUM_TOP, job.data.num_classes)

    def score(element: Element) -> tf.Tensor:
        images, labels = job.data.val.batch_of(element)
        is_there = labels >= 0
        labels = tf.maximum(labels, 0)
        scores = in_fp32(job.network(images, training=False))
        hits = tf.equal(tf.cast(tf.math.top_k(scores, num_top).indices, tf.int64), labels[:, None])
        found = (
            cross_entropy(scores, labels, 0.0),
            hits[:, 0],
            tf.reduce_any(hits, axis=1),
            is_there,
        )
        counted = [
            tf.where(is_there, tf.cast(each, tf.float64), tf.zeros((), tf.float64))
            for each in found
        ]
        return tf.stack([tf.reduce_sum(each) for each in counted])

    return score


def in_fp32(numbers: tf.Tensor) -> tf.Tensor:
    """Give scores and losses in fp32, whatever precision a network of one's own ends in."""
    return tf.cast(numbers, tf.float32)


def cross_entropy(scores: tf.Tensor, labels: tf.Tensor, smoothing: float) -> tf.Tensor:
    """Give each picture's loss; all classes share `smoothing` of its label."""
    if not smoothing:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores)
    num_classes = scores.shape[-1]
    wanted = tf.one_hot(labels, num_classes, on_value=1 - smoothing) + smoothing / num_classes
    return tf.nn.softmax_cross_entropy_with_logits(wanted, scores)
