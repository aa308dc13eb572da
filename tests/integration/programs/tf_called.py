"""The tiny programs of TensorFlow, on a GPU that is full where the arguments say `--full`.

main(["tf" or "keras", "--full" or "--head" or "--odd" or nothing, ...options of trainer.tf.job])

With `--head` the network is a head alone, whose weights bear names as torchvision's do ("tf") or Keras's paths;
with `--odd` it has an output more than the data has classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NoReturn

import keras
import tensorflow as tf

from tests.integration.programs import tf_tiny
from trainer.tf import steps
from trainer.tf.network import Normalise


def main(argv: Sequence[str]) -> int:
    """Run the program with its batch norms."""
    framework, *rest = argv
    for flag, num_more in (("--head", 0), ("--odd", 1)):
        if flag in rest:
            rest.remove(flag)
            build = partial(build_head, use_bias=framework == "tf", num_more=num_more)
            return tf_tiny.PROGRAMS[framework].main(rest, program="head", build=build)
    if "--full" not in rest:
        return tf_tiny.main([framework, "statistics", *rest])
    rest.remove("--full")
    cross_entropy, steps.cross_entropy = steps.cross_entropy, full
    try:
        return tf_tiny.main([framework, "statistics", *rest])
    finally:
        steps.cross_entropy = cross_entropy


def build_head(num_classes: int, size: int, *, use_bias: bool, num_more: int) -> keras.Model:
    """Make a linear layer over a few pixels."""
    images = keras.Input((size, size, 3), dtype="uint8")
    x = keras.layers.AveragePooling2D(8)(Normalise()(images))
    head = keras.layers.Dense(
        num_classes + num_more, use_bias=use_bias, dtype="float32", name="scores"
    )
    return keras.Model(images, head(keras.layers.Flatten()(x)))


def full(*_given: object) -> NoReturn:
    """Fail as a step does that the memory does not hold."""
    raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")
