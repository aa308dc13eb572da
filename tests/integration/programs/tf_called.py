"""The tiny programs of TensorFlow, on a GPU that is full where the arguments say `--full`.

main(["tf" or "keras", "--full"?, ...options of trainer.tf.job])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import tensorflow as tf

from tests.integration.programs import tf_tiny
from trainer.tf import steps


def main(argv: Sequence[str]) -> int:
    """Run the program with its batch norms."""
    framework, *rest = argv
    if "--full" not in rest:
        return tf_tiny.main([framework, "statistics", *rest])
    rest.remove("--full")
    cross_entropy, steps.cross_entropy = steps.cross_entropy, full
    try:
        return tf_tiny.main([framework, "statistics", *rest])
    finally:
        steps.cross_entropy = cross_entropy


def full(*_given: object) -> NoReturn:
    """Fail as a step does that the memory does not hold."""
    raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")
