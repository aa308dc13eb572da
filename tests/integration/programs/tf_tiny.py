"""The ResNet programs of TensorFlow and Keras with a network of seconds.

    main(["tf" or "keras", "statistics" or "plain", ...options of trainer.tf.job])

With statistics it has batch norm and dropout, plain has neither. WATCH_INDEX names a file that
gets `ATTEMPT RANK STEP SAMPLE ...` for every step taken, with WATCH_ATTEMPT. WATCH_FAULT is
`RANK STEP`: the loss of that rank's step becomes nan. WATCH_NOTICE is `RANK STEP`: that rank gets
SIGTERM in that step. WATCH_EXACT has TensorFlow refuse what it cannot compute alike twice.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

import keras
import tensorflow as tf

import trainer.tf.resnet50
import trainer.tfkeras.resnet50
from trainer.common.position import Position, TakenStep
from trainer.tf.guard import Guard
from trainer.tf.network import FusedBatchNorm, Normalise

PROGRAMS = {"tf": trainer.tf.resnet50, "keras": trainer.tfkeras.resnet50}


def main(argv: Sequence[str]) -> int:
    framework, kind, *rest = argv

    def build(num_classes: int, size: int) -> keras.Model:
        # Once the ranks know each other.
        watch()
        return build_tiny(num_classes, size, has_statistics=kind == "statistics")

    if os.environ.get("WATCH_EXACT"):
        tf.config.experimental.enable_op_determinism()
    return PROGRAMS[framework].main(rest, program=f"tiny-{framework}", build=build)


def build_tiny(num_classes: int, size: int, *, has_statistics: bool) -> keras.Model:
    images = keras.Input((size, size, 3), dtype="uint8")
    x = keras.layers.AveragePooling2D(4, name="pool")(Normalise(name="normalise")(images))
    x = keras.layers.Conv2D(8, 3, name="conv")(x)
    if has_statistics:
        x = FusedBatchNorm(name="bn")(x)
    x = keras.layers.Flatten(name="flatten")(keras.layers.ReLU(name="relu")(x))
    if has_statistics:
        x = keras.layers.Dropout(0.2, seed=1, name="dropout")(x)
    return keras.Model(images, keras.layers.Dense(num_classes, dtype="float32", name="fc")(x))


def watch() -> None:
    """Note what each step was fed, and spoil a loss where that is asked for."""
    index = os.environ.get("WATCH_INDEX", os.devnull)
    log = os.open(index, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    attempt = os.environ.get("WATCH_ATTEMPT", "0")
    rank = int(os.environ.get("RANK", "0"))
    bad_rank, bad_step = map(int, os.environ.get("WATCH_FAULT", "-1 0").split())
    notice = tuple(map(int, os.environ.get("WATCH_NOTICE", "-1 0").split()))
    take_step, add_up = Guard.step, Guard.add_up
    steps = tf.Variable(0, trainable=False)

    def step(self: Guard, position: Position, *, taken: TakenStep) -> None:
        samples = " ".join(map(str, taken.samples))
        os.write(log, f"{attempt} {rank} {taken.step} {samples}\n".encode())
        if (rank, taken.step) == notice:
            os.kill(os.getpid(), signal.SIGTERM)
        take_step(self, position, taken=taken)

    def spoilt(self: Guard, loss: tf.Tensor, num_samples: int) -> None:
        is_bad = (steps.assign_add(1) == bad_step) & (rank == bad_rank)
        add_up(self, tf.where(is_bad, tf.cast(float("nan"), loss.dtype), loss), num_samples)

    Guard.step = step
    if bad_rank >= 0:
        Guard.add_up = spoilt
