"""Trains ResNet-50 on ImageNet, or on any pictures in class folders, on any number of ranks.

    launch shell tensorflow -- python -m trainer.tf.resnet50 \\
        --data synthetic --image-size 64 --epochs 4
    launch run resnet50-tf-synthetic

A loop of one's own in TensorFlow, with Horovod's gradient tape. `--data` takes a folder
(docs/training-tensorflow.md), `synthetic` for a small set of JPEGs that is made on the spot, or
`random` for one batch of noise, to measure speed. The recipe is that of Goyal et al. 2017 (arXiv
1706.02677): the learning rate grows with the batch of all ranks, after a warm-up.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from trainer.common.messages import warn
from trainer.common.metrics import MainFigure, Metrics
from trainer.common.options import parse_options
from trainer.common.position import Position, TakenStep
from trainer.common.throughput import Throughput
from trainer.common.trackers import open_trackers
from trainer.tf.guard import Guard
from trainer.tf.job import (
    NUM_TOP,
    Job,
    Options,
    average_statistics,
    prepare,
    require_finite,
    write_results,
)
from trainer.tf.loader import Batch
from trainer.tf.program import run_program

PROGRAM = "trainer.tf.resnet50"
MAIN_FIGURE = MainFigure(split="val", name="top1", goal="max")

# From images, labels and the guard's flags to the sums of the ranks' reports on the step.
Step = Callable[[np.ndarray, np.ndarray, np.ndarray], tf.Tensor]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; gives its exit code."""
    options = parse_options(Options, argv, description=(__doc__ or "").splitlines()[0])
    return run_program(
        options, options.strategy, lambda ranks: train(prepare(PROGRAM, options, ranks))
    )


def train(job: Job) -> None:
    """Train from where the last checkpoint left off, evaluate after every epoch, write the model."""
    began_s = time.perf_counter()
    options, world, run_dir = job.options, job.ranks.world, job.ranks.run_dir
    throughput = Throughput(num_warmup_steps=min(10, job.num_batches))
    keeper = job.make_keeper()
    position = keeper.restore(options.epochs)
    trackers = open_trackers(run_dir.outputs / "tensorboard", world, warn=warn)
    found: dict[str, float] = {}
    with (
        contextlib.closing(keeper),
        Metrics(
            run_dir.metrics,
            world,
            after_step=position.step,
            trackers=trackers,
            main=MAIN_FIGURE,
        ) as metrics,
    ):
        progress = job.make_progress(metrics, throughput)
        guard = Guard(job.ranks, keeper, on_loss=progress.on_loss, hint=job.options.hint)
        step, score = make_step(job, guard), make_score(job)
        while True:
            if position.epoch and not position.batch:
                found = evaluate(job, position, guard, score)
                progress.on_epoch(position, found, split="val")
            if position.epoch == options.epochs:
                break
            with throughput.training():
                position = train_epoch(job, position, guard, throughput, step)
    write_results(job, found, throughput=throughput, keeper=keeper, began_s=began_s)


def train_epoch(
    job: Job, position: Position, guard: Guard, throughput: Throughput, step: Step
) -> Position:
    """Take one step per global batch that is left of the epoch; each rank computes its part."""
    batches = job.train_batches(position)
    while batch := _next(batches, throughput):
        job.optimizer.learning_rate = job.schedule.rate(position.step)
        sums = step(batch.images, batch.labels, guard.flags())

        throughput.step(job.batch_size)
        taken = TakenStep(
            step=position.step + 1,
            epoch=position.epoch + 1,
            batch=position.batch + 1,
            samples=batch.samples,
        )
        position = position.after_batch(job.num_batches)
        guard.step(position, sums, taken=taken)
        throughput.add_host(guard.take_host_s())
    guard.settle()
    return position


def _next(batches: Iterator[Batch], throughput: Throughput) -> Batch | None:
    with throughput.waiting():
        return next(batches, None)


def make_step(job: Job, guard: Guard) -> Step:
    """Make one step as one graph: gradients, their mean over ranks, the update, and the ranks' reports.

    XLA compiles the network and with it its gradients; what talks to other ranks stays outside.
    """
    options, network, optimizer = job.options, job.network, job.optimizer
    num_images, size = options.batch_per_rank, options.image_size
    weights = [variable.value for variable in network.trainable_variables]

    @tf.function(jit_compile=options.xla, autograph=False)
    def mean_loss(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        scores = network(images, training=True)
        return tf.reduce_mean(cross_entropy(scores, labels, options.label_smoothing))

    @tf.function(
        input_signature=[
            tf.TensorSpec((num_images, size, size, 3), tf.uint8),
            tf.TensorSpec((num_images,), tf.int64),
            tf.TensorSpec((2,), tf.float64),
        ],
        autograph=False,
    )
    def step(images: tf.Tensor, labels: tf.Tensor, flags: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = mean_loss(images, labels)
            scaled = optimizer.scale_loss(loss)
        gradients = job.ranks.strategy.tape(tape).gradient(scaled, weights)
        optimizer.apply(gradients, network.trainable_variables)
        return guard.add_up(num_images * loss, num_images, flags)

    return step


def cross_entropy(scores: tf.Tensor, labels: tf.Tensor, smoothing: float) -> tf.Tensor:
    """Give each picture's loss; all classes share `smoothing` of its label."""
    if not smoothing:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores)
    num_classes = scores.shape[-1]
    wanted = tf.one_hot(labels, num_classes, on_value=1 - smoothing) + smoothing / num_classes
    return tf.nn.softmax_cross_entropy_with_logits(wanted, scores)


def make_score(job: Job) -> Callable[[np.ndarray, np.ndarray], tf.Tensor]:
    """Make what gives sums over pictures: of losses, of the right ones, of those among the top."""
    size, num_top = job.options.image_size, min(NUM_TOP, job.data.num_classes)

    @tf.function(
        input_signature=[
            tf.TensorSpec((None, size, size, 3), tf.uint8),
            tf.TensorSpec((None,), tf.int64),
        ],
        autograph=False,
    )
    def score(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        scores = job.network(images, training=False)
        hits = tf.equal(tf.cast(tf.math.top_k(scores, num_top).indices, tf.int64), labels[:, None])
        found = (cross_entropy(scores, labels, 0.0), hits[:, 0], tf.reduce_any(hits, axis=1))
        return tf.stack([tf.reduce_sum(tf.cast(each, tf.float64)) for each in found])

    return score


def evaluate(
    job: Job,
    position: Position,
    guard: Guard,
    score: Callable[[np.ndarray, np.ndarray], tf.Tensor],
) -> dict[str, float]:
    """Give mean loss, top-1 and top-5 accuracy over the whole validation set, each picture once."""
    average_statistics(job)
    totals = np.zeros(3, np.float64)
    for batch in job.val_batches():
        if batch.samples:
            totals += score(batch.images, batch.labels).numpy()
        guard.check(position)
    guard.settle()
    sums = job.ranks.strategy.sum(tf.constant(totals), "evaluation").numpy()
    loss, top1, top5 = (sums / job.data.num_val).tolist()
    found = {"loss": loss, "top1": top1, "top5": top5}
    require_finite(job, found)
    return found


if __name__ == "__main__":
    sys.exit(main())
