"""Finishes a TensorFlow or Keras training: compares the ranks' weights, writes model and summary."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from trainer.common.errors import TrainingError
from trainer.common.model_about import model_name
from trainer.common.position import Position
from trainer.common.throughput import Throughput
from trainer.tf.job import Job
from trainer.tf.keeper import Keeper
from trainer.tf.model_file import write_model
from trainer.tf.state import float_statistics, other_statistics, weights_digest
from trainer.tf.strategy import copy_of_main


def write_results(
    job: Job,
    found: Mapping[str, float],
    *,
    position: Position,
    throughput: Throughput,
    keeper: Keeper,
    began_s: float,
) -> None:
    """Write summary and, of a training, the model; a collective, after which all is on disk.

    `found` are the figures of the last evaluation.
    """
    options, world, run_dir, data = job.options, job.ranks.world, job.ranks.run_dir, job.data
    keeper.finish(hint=options.hint)
    # An evaluation may move them, too.
    moved = [*other_statistics(job.network), *float_statistics(job.network)]
    copy_of_main(moved, job.ranks.strategy, world)
    digests = gather_digests(job)
    skipped = float(data.corrupt.num_skipped if data.corrupt else 0)
    num_skipped = job.ranks.strategy.sum(tf.constant(skipped), "skipped").numpy()
    if world.is_main:
        if not options.evaluate_only:
            name = model_name(job.program)
            about = {
                "program": job.program,
                "image_size": options.image_size,
                "classes": [*data.classes],
            }
            write_model(job.network, run_dir.output("model") / f"{name}.safetensors", about)
        sizes = (math.prod(variable.shape) for variable in job.network.trainable_variables)
        run_dir.write_summary(
            {
                "program": job.program,
                "strategy": job.ranks.strategy.name,
                "world_size": world.size,
                "device": job.device,
                "precision": options.precision,
                "epochs": options.epochs,
                "steps": position.step,
                "batch_size": job.batch_size,
                "image_size": options.image_size,
                "seed": options.seed,
                "parameters": sum(sizes),
                "train_images": data.num_train,
                "val_images": data.num_val,
                "pictures_skipped": int(num_skipped),
                **{f"val_{name}": value for name, value in found.items()},
                "images_per_s": throughput.samples_per_s,
                "data_wait_s": throughput.data_wait_s,
                "train_s": round(time.perf_counter() - began_s, 3),
                "weights_sha256": digests,
                **keeper.figures(),
            }
        )
    # No rank says that all is well before the model is on disk.
    job.ranks.strategy.barrier()


def gather_digests(job: Job) -> Sequence[str]:
    """Give the SHA-256 of every rank's weights; raises TrainingError where two differ."""
    mine = np.frombuffer(weights_digest(job.network), np.uint8)
    digests = [part.tobytes().hex() for part in job.ranks.strategy.gather(mine)]
    for rank, other in enumerate(digests):
        if other != digests[0]:
            message = f"rank {rank} ended with other weights than rank 0"
            raise TrainingError(message)
    return digests
