"""Trains, evaluates or predicts by a job of TensorFlow or Keras; a program says how steps are taken."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from typing import Protocol

import numpy as np
import tensorflow as tf

from trainer.common.accelerators import OTHERS_HINT, PREDICTED
from trainer.common.errors import TrainingError
from trainer.common.messages import say, warn
from trainer.common.metrics import MainFigure, Metrics
from trainer.common.position import Position
from trainer.common.throughput import Throughput
from trainer.common.trackers import open_trackers
from trainer.tf.find_batch import beyond_memory, is_lack, tell_largest_batch
from trainer.tf.finish import write_results
from trainer.tf.guard import Guard
from trainer.tf.job import Build, Job, Options, prepare
from trainer.tf.loader import Reading
from trainer.tf.prediction import predict
from trainer.tf.profiling import Profiler
from trainer.tf.state import other_statistics, rank_state, write_statistics
from trainer.tf.steps import NUM_TOP
from trainer.tf.strategy import Ranks, copy_of_main

MAIN_FIGURE = MainFigure(split="val", name="top1", goal="max")


class Driver(Protocol):
    """Take the steps of a training, by a loop or by Keras's `fit`."""

    def train_epoch(self, reading: Reading, position: Position) -> Position:
        """Take one step per batch that is left of the epoch; gives where training stands then."""
        ...

    def score(self, reading: Reading, position: Position) -> np.ndarray:
        """Add up the scores (trainer.tf.steps) of all validation batches of this rank."""
        ...


# Makes the driver of a job, whose ranks agree by the guard and whose steps are timed and profiled.
MakeDriver = Callable[[Job, Guard, Throughput, Profiler], Driver]


def run(
    program: str, options: Options, ranks: Ranks, make: MakeDriver, *, build: Build | None = None
) -> None:
    """Train from where the last checkpoint left off, evaluate after every epoch, write the model.

    With `--evaluate-only`, `--predict` or `--find-batch` do that alone. Raises TrainingError for what
    the user can correct, and Preempted, on all ranks at one step.
    """
    began_s = time.perf_counter()
    try:
        if options.predict is not None:
            predict(options.predict, options, ranks, build=build)
            return
        job = prepare(program, options, ranks, build=build)
        if options.find_batch:
            tell_largest_batch(job)
            return
        train(job, make, began_s=began_s)
    except tf.errors.OpError as error:
        if not is_lack(error):
            raise
        if options.predict is not None:
            message = f"the GPU's memory does not hold {PREDICTED}"
            raise TrainingError(message, hint=OTHERS_HINT) from None
        raise beyond_memory(options.batch_per_rank) from None


def train(job: Job, make: MakeDriver, *, began_s: float) -> None:
    """Train and evaluate; writes the results."""
    options, world, run_dir = job.options, job.ranks.world, job.ranks.run_dir
    throughput = Throughput(num_warmup_steps=min(10, job.num_batches))
    keeper = job.make_keeper()
    position = keeper.restore(options.epochs)
    if options.evaluate_only and not position.step:
        options.require_learnt(options.weights, unknown=job.unknown)
    trackers = open_trackers(
        run_dir.outputs / "tensorboard",
        world,
        warn=warn,
        after_step=position.step,
        only_evaluates=options.evaluate_only,
    )
    profiler = Profiler(
        run_dir,
        device=job.device,
        num_steps=options.profile if world.is_main else 0,
        say=say,
    )
    num_steps = 0 if options.evaluate_only else options.epochs * job.num_batches
    profiler.plan(max(0, num_steps - position.step))
    with (
        contextlib.closing(keeper),
        Metrics(
            run_dir.metrics,
            world,
            after_step=position.step,
            only_evaluates=options.evaluate_only,
            trackers=trackers,
            main=MAIN_FIGURE,
        ) as metrics,
        profiler,
    ):
        progress = job.make_progress(metrics, throughput)
        guard = Guard(job.ranks, keeper, on_loss=progress.on_loss, hint=options.hint)
        driver = make(job, guard, throughput, profiler)
        while True:
            is_over = options.evaluate_only or position.epoch == options.epochs
            if is_over or (position.epoch and not position.batch):
                found = evaluate(job, position, guard, driver)
                progress.on_epoch(position, found, split="val")
            if is_over:
                break
            with throughput.training(), job.read_training(position) as reading:
                position = driver.train_epoch(reading, position)
                guard.settle()
    write_results(
        job,
        found,
        position=position,
        throughput=throughput,
        keeper=keeper,
        began_s=began_s,
    )


def evaluate(job: Job, position: Position, guard: Guard, driver: Driver) -> dict[str, float]:
    """Give mean loss and top-1 over the validation set, top-5 of more classes; each picture once.

    Corrupt ones are left out. Raises TrainingError where all are, or the loss is not finite.
    """
    average_statistics(job)
    with job.read_validation() as reading:
        own = driver.score(reading, position)
    guard.settle()
    sums = job.ranks.strategy.sum(tf.constant(own, tf.float64), "evaluation").numpy()
    if not sums[3]:
        message = f"none of the {job.data.num_val} pictures to evaluate on can be decoded"
        raise TrainingError(message, hint="get the data set again")
    loss, top1, top5 = (sums[:3] / sums[3]).tolist()
    if not math.isfinite(loss):
        message = "training has diverged: the loss of the validation set is not finite"
        raise TrainingError(message, hint=job.options.hint)
    has_more = job.data.num_classes > NUM_TOP
    return {"loss": loss, "top1": top1} | ({"top5": top5} if has_more else {})


def average_statistics(job: Job) -> None:
    """Give all ranks the mean of their batch statistics, and rank 0's counts; a collective, for before an evaluation.

    In fp64, where the mean of equal ones is what they are: those of a part that is frozen stay.
    """
    copy_of_main(other_statistics(job.network), job.ranks.strategy, job.ranks.world)
    own = rank_state(job.network)["buffers"]
    if own.size and job.ranks.world.size > 1:
        total = job.ranks.strategy.sum(tf.constant(own, tf.float64), "statistics").numpy()
        write_statistics(job.network, total / job.ranks.world.size)
