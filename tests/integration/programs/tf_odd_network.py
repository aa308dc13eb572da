"""A network of one's own with what built-in ones lack, in the ResNet programs of TensorFlow and Keras.

    main(["train", "tf" or "keras", ...options of trainer.tf.job])   prints its integer weights
    main(["named", NAME, ...the same])   trains by that name
    main(["scores", ...the same])   prints in which precision losses and hits are computed
    main(["state"])   prints as JSON what becomes of its state

It has integer weights, a part that is frozen, regularizers, and scores in the policy's precision.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

import keras
import numpy as np
import tensorflow as tf

from tests.integration.programs import tf_tiny
from trainer.common.errors import TrainingError
from trainer.tf import steps
from trainer.tf.guard import Guard
from trainer.tf.loop import average_statistics
from trainer.tf.network import FusedBatchNorm, Normalise
from trainer.tf.state import (
    float_statistics,
    rank_state,
    restore_rank_state,
    seed_generators,
    write_statistics,
)

built: list[keras.Model] = []


class Counter(keras.layers.Layer):
    """Counts the steps that it is trained by."""

    def build(self, _shape: object) -> None:
        self.seen = self.add_weight(
            name="seen", shape=(), dtype="int32", initializer="zeros", trainable=False
        )

    def call(self, inputs: tf.Tensor, *, training: bool = False) -> tf.Tensor:
        if training:
            self.seen.assign(self.seen + 1)
        return inputs * 1.0  # of floats, as a call of the network makes them


def build(num_classes: int, size: int) -> keras.Model:
    images = keras.Input((size, size, 3))
    x = Normalise(name="normalise")(Counter(name="counter")(images))
    # As EfficientNet's, never adapted.
    x = keras.layers.Normalization(name="known")(x)
    x = keras.layers.AveragePooling2D(8, name="pool")(x)
    inner = keras.Input((size // 8, size // 8, 3))
    x = keras.Model(
        inner,
        FusedBatchNorm(name="bn")(
            keras.layers.Conv2D(4, 1, activity_regularizer="l2", name="conv")(inner)
        ),
        name="back",
    )(x)
    x = keras.layers.Dropout(0.2, seed=1, name="dropout")(keras.layers.Flatten(name="flat")(x))
    network = keras.Model(
        images, keras.layers.Dense(num_classes, kernel_regularizer="l2", name="fc")(x)
    )
    network.get_layer("back").trainable = False
    built.append(network)
    return network


def train(framework: str, *options: str) -> int:
    code = tf_tiny.PROGRAMS[framework].main(options, program="odd-v1.5", build=build)
    print(json.dumps(integers(built[-1])))
    return code


def named(name: str, *options: str) -> int:
    return tf_tiny.PROGRAMS["tf"].main(options, program=name, build=build)


def scores(framework: str, *options: str) -> int:
    """Train; prints the dtypes of what loss and top-k of scores are computed of, and the loss that is learned by."""
    found: dict[str, set[str]] = {"cross_entropy": set(), "top_k": set(), "learned": set()}

    def noted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def noting(*given: Any) -> Any:
            found[name].add(next(each.dtype.name for each in given if tf.is_tensor(each)))
            return call(*given)

        return noting

    with (
        mock.patch.object(steps, "cross_entropy", noted("cross_entropy", steps.cross_entropy)),
        mock.patch.object(tf.math, "top_k", noted("top_k", tf.math.top_k)),
        mock.patch.object(Guard, "add_up", noted("learned", Guard.add_up)),
    ):
        code = tf_tiny.PROGRAMS[framework].main(options, program="odd", build=build)
    print(json.dumps({name: sorted(dtypes) for name, dtypes in found.items()}))
    return code


def integers(network: keras.Model) -> dict[str, int]:
    """The integer weights by their paths."""
    return {each.path: int(each.numpy()) for each in network.weights if "int" in each.dtype}


def seeded() -> object:
    """The integer weights once generators are seeded, and whether these are."""
    network = build(2, 16)
    before = rank_state(network)["rng"]
    seed_generators(network, "7/0/1")
    after = rank_state(network)["rng"]
    return integers(network), before.size, bool((before != after).all())


def statistics() -> object:
    """The paths of the statistics in which ranks differ."""
    return [each.path for each in float_statistics(build(2, 16))]


def of_earlier() -> object:
    """What a rank's state becomes that an earlier version saved, and one of another network."""
    network = build(2, 16)
    own = rank_state(network)
    # In the order of Keras's variables, of which the last is the dropout's; and of the frozen part: a
    # kernel of 12 numbers, and 4 of each bias, scale, offset, mean and variance behind the 6 first ones.
    earlier = {"rng": np.array([5, 6, 7, 8]), "buffers": np.arange(6 + 12 + 5 * 4, dtype="f4")}
    restore_rank_state(earlier, network)
    now = rank_state(network)
    found = integers(network), now["rng"].tolist(), now["buffers"].tolist()
    said: list[str] = []
    for key, value in {"rng": np.arange(5), "buffers": np.zeros(9, np.float32)}.items():
        try:
            restore_rank_state({**own, key: value}, network)
        except TrainingError as error:
            said.append(str(error))
    return *found, said


def averaged() -> object:
    """How many of twenty means of equal statistics, over three ranks, are equal to the bit."""
    network, rng, num_equal = build(2, 16), np.random.default_rng(1), 0
    size = rank_state(network)["buffers"].size
    strategy = SimpleNamespace(
        sum=lambda own, _name: own + own + own, gather=lambda own: [own, own, own]
    )
    job: Any = SimpleNamespace(
        network=network,
        ranks=SimpleNamespace(world=SimpleNamespace(size=3), strategy=strategy),
    )
    for _ in range(20):
        write_statistics(network, rng.normal(size=size).astype(np.float32))
        before = rank_state(network)["buffers"].tobytes()
        average_statistics(job)
        num_equal += rank_state(network)["buffers"].tobytes() == before
    return num_equal


def main(argv: Sequence[str]) -> int:
    what, *rest = argv
    if what != "state":
        return {"train": train, "named": named, "scores": scores}[what](*rest)
    print(
        json.dumps({each.__name__: each() for each in (seeded, statistics, of_earlier, averaged)})
    )
    return 0
