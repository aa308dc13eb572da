"""Finds the largest batch of which a GPU's memory holds a step of TensorFlow, by trying steps."""

from __future__ import annotations

import tensorflow as tf

from trainer.common.errors import TrainingError
from trainer.common.find_batch import (
    SMALLER_PICTURES,
    found_batch,
    largest_batch,
    require_one_gpu,
)
from trainer.common.messages import say
from trainer.common.sharding import LEAST_BATCH
from trainer.tf.job import Job
from trainer.tf.steps import make_learning


def is_lack(error: tf.errors.OpError) -> bool:
    """Tell an error of too little memory on a GPU: cuDNN's is of all algorithms that it tried."""
    if isinstance(error, tf.errors.ResourceExhaustedError):
        return True
    said = str(error)
    return "No algorithm worked" in said and ("Out of memory" in said or "ALLOC_FAILED" in said)


def tell_largest_batch(job: Job) -> None:
    """Say about the largest batch of which memory holds a step, and write it into the summary.

    Raises TrainingError where there is no one GPU, or its memory holds no step.
    """
    require_one_gpu(job.device, job.ranks.world.size)
    side = job.options.image_size
    learn = tf.function(
        make_learning(job),
        input_signature=[
            tf.TensorSpec((None, side, side, 3), tf.uint8),
            tf.TensorSpec((None,), tf.int64),
        ],
        autograph=False,
    )

    def holds(number: int) -> bool:
        try:
            for _ in range(2):  # what the first leaves behind takes room in the second
                images = tf.zeros((number, side, side, 3), tf.uint8)
                learn(images, tf.zeros(number, tf.int64)).numpy()
        except tf.errors.OpError as error:
            if not is_lack(error):
                raise
            return False
        return True

    found = largest_batch(holds, least=LEAST_BATCH, hint=SMALLER_PICTURES, say=say)
    text, summary = found_batch(found, "batch_per_rank", program=job.program)
    say(text)
    job.ranks.run_dir.write_summary(summary)


def beyond_memory(batch: int) -> TrainingError:
    """Give the error of a training whose batch is too large for the GPU."""
    message = f"the GPU's memory does not hold a step of --batch-per-rank {batch}"
    return TrainingError(message, hint="--find-batch finds a --batch-per-rank that fits")
