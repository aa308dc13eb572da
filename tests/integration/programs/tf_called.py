"""The tiny programs of TensorFlow, on a GPU that is full where the arguments say `--full`.

main(["tf" or "keras", "--full" or "--head" or nothing, ...options of trainer.tf.job])

With `--head` the network is a head alone, whose weights bear the names of torchvision's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import keras
import tensorflow as tf

from tests.integration.programs import tf_tiny
from trainer.tf import steps
from trainer.tf.network import HEAD, Normalise


def main(argv: Sequence[str]) -> int:
    """Run the program with its batch norms."""
    framework, *rest = argv
    if "--head" in rest:
        rest.remove("--head")
        return tf_tiny.PROGRAMS[framework].main(rest, program="head", build=build_head)
    if "--full" not in rest:
        return tf_tiny.main([framework, "statistics", *rest])
    rest.remove("--full")
    cross_entropy, steps.cross_entropy = steps.cross_entropy, full
    try:
        return tf_tiny.main([framework, "statistics", *rest])
    finally:
        steps.cross_entropy = cross_entropy


def build_head(num_classes: int, size: int) -> keras.Model:
    """Make a linear layer over a few pixels."""
    images = keras.Input((size, size, 3), dtype="uint8")
    x = keras.layers.AveragePooling2D(8)(Normalise()(images))
    head = keras.layers.Dense(num_classes, dtype="float32", name=HEAD)
    return keras.Model(images, head(keras.layers.Flatten()(x)))


def full(*_given: object) -> NoReturn:
    """Fail as a step does that the memory does not hold."""
    raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")
