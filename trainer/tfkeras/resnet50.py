"""Trains ResNet-50 with Keras on ImageNet, or on any pictures in class folders, on any ranks.

    launch shell tensorflow -- python -m trainer.tfkeras.resnet50 \\
        --data synthetic --image-size 64 --epochs 4
    launch run resnet50-keras-synthetic

The network, the options and the recipe of trainer.tf.resnet50, with Keras 3's `fit` in place of a
loop: an optimizer that averages gradients, and callbacks that agree, save and stop.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping, Sequence

import keras
import tensorflow as tf

from trainer.common.errors import TrainingError
from trainer.common.messages import warn
from trainer.common.metrics import MainFigure, Metrics
from trainer.common.options import parse_options
from trainer.common.position import Position
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
from trainer.tf.program import run_program
from trainer.tf.strategy import Ranks
from trainer.tfkeras.callbacks import Evaluation, Feed, Protocol, WatchedLoss
from trainer.tfkeras.optimizer import average_gradients

PROGRAM = "trainer.tfkeras.resnet50"
MAIN_FIGURE = MainFigure(split="val", name="top1", goal="max")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; gives its exit code."""
    options = parse_options(Options, argv, description=(__doc__ or "").splitlines()[0])

    def run(ranks: Ranks) -> None:
        require_no_xla_beside_horovod(options, ranks)
        train(prepare(PROGRAM, options, ranks))

    return run_program(options, options.strategy, run)


def require_no_xla_beside_horovod(options: Options, ranks: Ranks) -> None:
    """Raises TrainingError: Keras would have XLA compile the allreduce, too, which it cannot."""
    if options.xla and ranks.strategy.name == "horovod":
        message = "--xla with `fit` compiles the whole step, and Horovod's part of it cannot be"
        raise TrainingError(message, hint="trainer.tf.resnet50 --xla, or no --xla")


def train(job: Job) -> None:
    """Train from where the last checkpoint left off, evaluate after every epoch, write the model."""
    began_s = time.perf_counter()
    options, world, run_dir = job.options, job.ranks.world, job.ranks.run_dir
    throughput = Throughput(num_warmup_steps=min(10, job.num_batches))
    keeper = job.make_keeper()
    position = keeper.restore(options.epochs)
    loss, metrics_of_val = compile_network(job)
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
        protocol = Protocol(job, guard, throughput, loss, position)
        while True:
            if protocol.position.epoch and not protocol.position.batch:
                found = evaluate(job, protocol.position, guard, metrics_of_val)
                progress.on_epoch(protocol.position, found, split="val")
            if protocol.position.epoch == options.epochs:
                break
            with throughput.training():
                fit_epoch(job, protocol)
                guard.settle()
    write_results(job, found, throughput=throughput, keeper=keeper, began_s=began_s)


def compile_network(job: Job) -> tuple[WatchedLoss, dict[str, keras.metrics.Mean]]:
    """Make the network ready for `fit`; gives its loss and the metrics of an evaluation."""
    average_gradients(job.optimizer, job.ranks.strategy)
    loss = WatchedLoss(job.options.label_smoothing)
    num_top = min(NUM_TOP, job.data.num_classes)
    metrics: dict[str, keras.metrics.Mean] = {
        "loss": keras.metrics.SparseCategoricalCrossentropy(from_logits=True, name="entropy"),
        "top1": keras.metrics.SparseCategoricalAccuracy(name="top1"),
        "top5": keras.metrics.SparseTopKCategoricalAccuracy(num_top, name="top5"),
    }
    job.network.compile(
        optimizer=job.optimizer,
        loss=loss,
        metrics=list(metrics.values()),
        jit_compile=job.options.xla,
        auto_scale_loss=False,  # the optimizer has its loss scale already
    )
    return loss, metrics


def fit_epoch(job: Job, protocol: Protocol) -> None:
    """Train on what is left of the epoch."""
    position = protocol.position
    protocol.feed = Feed(job.train_batches(position))
    try:
        job.network.fit(
            iter(protocol.feed),
            initial_epoch=position.epoch,
            epochs=position.epoch + 1,
            steps_per_epoch=job.num_batches - position.batch,
            callbacks=[protocol],
            shuffle=False,  # the batches come in their order
            verbose=0,
        )
    except tf.errors.OpError:
        protocol.feed.raise_error()
        raise


def evaluate(
    job: Job, position: Position, guard: Guard, metrics: Mapping[str, keras.metrics.Mean]
) -> dict[str, float]:
    """Give mean loss, top-1 and top-5 accuracy over the whole validation set, each picture once."""
    average_statistics(job)
    evaluation = Evaluation(job, guard, position)
    feed = Feed(job.val_batches())
    num_full, rest = divmod(job.data.num_val, job.batch_size)
    num_mine = num_full + (job.ranks.world.rank < rest)
    job.network.reset_metrics()
    try:
        if num_mine:
            job.network.evaluate(iter(feed), steps=num_mine, callbacks=[evaluation], verbose=0)
    except tf.errors.OpError:
        feed.raise_error()
        raise
    guard.settle()
    found = evaluation.figures(metrics)
    require_finite(job, found)
    return found


if __name__ == "__main__":
    sys.exit(main())
