"""Networks as Keras's own `fit` takes them, that are not functional models of simple layers.

main(["kept", NAME...])   prints as JSON what two steps, a checkpoint and a model file make of each
main(["refused"])   prints what is said of networks that cannot be trained
main(["train", "tf" or "keras", NAME, ...options of trainer.tf.job])   prints what is in Own's weights
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from safetensors.numpy import load, save

from tests.integration.programs import tf_tiny
from trainer.common.errors import TrainingError
from trainer.tf.job import make_network
from trainer.tf.model_file import load_model, write_model
from trainer.tf.optimizer import make_optimizer, set_precision
from trainer.tf.state import read_files, restore_snapshot, take_snapshot, weights_digest
from trainer.tf.steps import make_learning
from trainer.tf.strategy import MultiWorkerMirrored, Single

CLASSES = ("a", "b", "c", "d")
SIZE = 16
MODEL = Path("model.safetensors")
layers = keras.layers


class Called(keras.Model):
    """Has its layers built by being called."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.scale = layers.Rescaling(1 / 255)
        self.conv = layers.Conv2D(8, 3, strides=4)
        self.bn = layers.BatchNormalization()
        self.pool = layers.GlobalAveragePooling2D()
        self.head = layers.Dense(num_classes)

    def features(self, images: tf.Tensor, *, training: bool) -> tf.Tensor:
        return self.pool(self.bn(self.conv(self.scale(images)), training=training))

    def call(self, images: tf.Tensor, training: bool = False) -> tf.Tensor:
        return self.head(self.features(images, training=training))


class OwnWeight(Called):
    """Makes a weight in build, and has its layers built by being called."""

    def build(self, _shape: object) -> None:
        self.token = self.add_weight(name="token", shape=(8,), initializer="zeros")

    def call(self, images: tf.Tensor, training: bool = False) -> tf.Tensor:
        return self.head(self.features(images, training=training) + self.token)


class BuiltLayers(Called):
    """Builds its layers in build, as Keras advises."""

    def build(self, shape: Any) -> None:
        self.conv.build(shape)
        self.bn.build(self.conv.compute_output_shape(shape))
        self.head.build((None, 8))


class Asking(Called):
    """Has to be told whether it is trained."""

    def call(self, images: tf.Tensor, training: bool) -> tf.Tensor:
        return super().call(images, training=training)


class Trained(Called):
    """Has a layer that only training uses."""

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes)
        self.more = layers.Dense(8)

    def call(self, images: tf.Tensor, training: bool = False) -> tf.Tensor:
        found = self.features(images, training=training)
        return self.head(found + self.more(found) if training else found)


class Shaped(Called):
    """Says what shape it gives, for which Keras need not call it."""

    def compute_output_shape(self, shape: Any) -> Any:
        return (shape[0], self.head.units)


class Twins(Called):
    """Has two layers of one name."""

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes)
        self.first = layers.Conv2D(3, 1, use_bias=False, name="twin")
        self.second = layers.Conv2D(3, 1, use_bias=False, name="twin")

    def call(self, images: tf.Tensor) -> tf.Tensor:
        return self.head(self.pool(self.second(self.first(self.scale(images)))))


class Scales(keras.layers.Layer):
    """Has weights of one name, and one that is a scalar."""

    def build(self, _shape: object) -> None:
        self.scales = [
            self.add_weight(name="scale", shape=(3,), initializer="ones") for _ in range(2)
        ]
        self.temperature = self.add_weight(name="temperature", shape=(), initializer="ones")

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return inputs * self.scales[0] * self.scales[1] * self.temperature


class First(keras.layers.Layer):
    """Gives the first of its inputs."""

    def call(self, inputs: Sequence[tf.Tensor]) -> tf.Tensor:
        return inputs[0] * 1.0

    def compute_output_shape(self, shapes: Any) -> Any:
        return shapes[0]


class Penalty(keras.layers.Layer):
    """Adds a loss for each picture."""

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        self.add_loss(tf.reduce_mean(inputs**2, axis=-1))
        return inputs


class Own(keras.layers.Layer):
    """Has weights in which ranks begin to differ, and a count that goes by the rank."""

    def build(self, _shape: object) -> None:
        self.rank = int(os.environ.get("RANK", "0"))
        kinds = {"seen": "int32", "flag": "bool", "small": "uint8"}

        def begin(shape: Any, dtype: Any = None) -> tf.Tensor:
            return tf.cast(tf.fill(shape, self.rank), dtype)

        self.own = [
            self.add_weight(name=name, shape=(), dtype=kind, initializer=begin, trainable=False)
            for name, kind in kinds.items()
        ]

    def call(self, inputs: tf.Tensor, *, training: bool = False) -> tf.Tensor:
        if training:
            self.own[0].assign(self.own[0] + 1 + self.rank)
        return inputs


def functional(num_classes: int, size: int, *, body: Callable[[Any], Any]) -> keras.Model:
    images = keras.Input((size, size, 3))
    x = body(layers.Rescaling(1 / 255)(images))
    return keras.Model(images, layers.Dense(num_classes, dtype="float32")(x))


def branches(x: Any) -> Any:
    """Two networks whose layers have the same names."""

    def branch(name: str) -> Any:
        inner = keras.Input(x.shape[1:])
        found = layers.Conv2D(8, 3, strides=4, name="conv")(inner)
        return keras.Model(inner, layers.GlobalAveragePooling2D()(found), name=name)(x)

    return layers.Concatenate()([branch("left"), branch("right")])


def one_slot(x: Any) -> Any:
    """Weights whose optimizer's variables have one name."""

    class Block(keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__(name="stem")
            self.proj = layers.Dense(3, name="proj")

        def call(self, inputs: tf.Tensor) -> tf.Tensor:
            return self.proj(inputs)

    return layers.Dense(3, name="stem_proj")(Block()(layers.GlobalAveragePooling2D()(x)))


def known(x: Any) -> Any:
    """A mean and a variance of pictures, which each build takes of others."""
    norm = layers.Normalization(axis=-1, name="known")
    norm.adapt(np.random.default_rng().random((8, 3), np.float32))
    return layers.Flatten()(layers.AveragePooling2D(8)(norm(x)))


def halved(x: Any) -> Any:
    """Weights in bfloat16."""
    x = layers.Conv2D(8, 3, strides=4, dtype="bfloat16")(x)
    return layers.GlobalAveragePooling2D()(layers.BatchNormalization(dtype="bfloat16")(x))


def unused(x: Any) -> Any:
    """A weight that the loss does not depend on."""
    found = layers.GlobalAveragePooling2D()(x)
    left = layers.Dense(3, name="unused")(found)
    return First()([found, left])


def differing(x: Any) -> Any:
    """Weights in which ranks come to differ, as they train and as they evaluate."""
    first = layers.Normalization(axis=-1, name="known")
    first.adapt(np.random.default_rng().random((8, 3), np.float32))
    x = layers.Conv2D(8, 3, strides=4, dtype="bfloat16")(first(Own(name="own")(x)))
    norm = layers.BatchNormalization(synchronized=True, name="norm")
    return unused(norm(x, training=True))


def frozen(num_classes: int, size: int) -> keras.Model:
    network = functional(num_classes, size, body=layers.Flatten())
    network.trainable = False
    return network


def sequential(num_classes: int, _size: int) -> keras.Model:
    return keras.Sequential(
        [
            layers.Rescaling(1 / 255),
            layers.Conv2D(8, 3, strides=4, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(num_classes),
        ]
    )


def by_class(kind: type[Called]) -> Callable[[int, int], keras.Model]:
    return lambda num_classes, _size: kind(num_classes)


def by_body(body: Callable[[Any], Any]) -> Callable[[int, int], keras.Model]:
    return lambda num_classes, size: functional(num_classes, size, body=body)


NETWORKS: dict[str, Callable[[int, int], keras.Model]] = {
    "frozen": frozen,
    "sequential": sequential,
    "called": by_class(Called),
    "own-weight": by_class(OwnWeight),
    "built-layers": by_class(BuiltLayers),
    "asking": by_class(Asking),
    "trained": by_class(Trained),
    "shaped": by_class(Shaped),
    "twins": by_class(Twins),
    "scales": by_body(lambda x: layers.GlobalAveragePooling2D()(Scales(name="scales")(x))),
    "branches": by_body(branches),
    "one-slot": by_body(one_slot),
    "known": by_body(known),
    "halved": by_body(halved),
    "penalty": by_body(lambda x: Penalty()(layers.GlobalAveragePooling2D()(x))),
    "unused": by_body(unused),
    "differing": by_body(differing),
}
IMAGES = np.random.default_rng(0).integers(0, 256, (4, SIZE, SIZE, 3), np.uint8)


def prepared(name: str) -> tuple[keras.Model, keras.optimizers.Optimizer]:
    """The network and its optimizer, as a training makes them."""
    keras.backend.clear_session()
    set_precision("fp32")
    network = make_network(NETWORKS[name], CLASSES, SIZE, batch=4)
    return network, make_optimizer(network, precision="fp32", momentum=0.9, weight_decay=0.0)


def kept(name: str) -> object:
    """Which weights two steps move, and whether checkpoint and model file make another build the same."""
    network, optimizer = prepared(name)
    before = [each.numpy() for each in network.trainable_variables]
    strategy: Any = Single()
    if name == "unused":
        strategy = MultiWorkerMirrored()
        strategy._strategy = tf.distribute.MultiWorkerMirroredStrategy()
    job: Any = SimpleNamespace(
        options=SimpleNamespace(xla=False, label_smoothing=0.1, batch_per_rank=4),
        network=network,
        optimizer=optimizer,
        ranks=SimpleNamespace(strategy=strategy),
    )
    learn = tf.function(make_learning(job), autograph=False)
    optimizer.learning_rate = 0.5
    for _ in range(2):
        learn(tf.constant(IMAGES), tf.range(4, dtype=tf.int64))
    pairs = zip(before, network.trainable_variables, strict=True)
    moved = [bool((was != now.numpy()).any()) for was, now in pairs]
    wanted = state_of(network, optimizer)
    snapshot = read_files(take_snapshot(network, optimizer, ranks={}).files())
    write_model(network, MODEL, {"classes": [*CLASSES], "image_size": SIZE})

    resumed = prepared(name)
    restore_snapshot(snapshot, *resumed)
    found: list[object] = [moved, state_of(*resumed) == wanted]
    for _ in range(2):
        loaded, _ = prepared(name)
        load_model(loaded, MODEL, classes=[*CLASSES])
        found.append(state_of(loaded) == wanted[:2])
        # As files of earlier versions hold scalars.
        held = {name: np.atleast_1d(each) for name, each in load(MODEL.read_bytes()).items()}
        MODEL.write_bytes(save(held))
    return found


def state_of(network: keras.Model, *optimizers: keras.optimizers.Optimizer) -> list[object]:
    """Hash the weights; give scores and what the optimizer holds."""
    scores = network(IMAGES, training=False)
    held = [each.numpy().tolist() for optimizer in optimizers for each in optimizer.variables]
    return [weights_digest(network).hex(), np.array(scores).tolist(), *([held] if held else [])]


def refused() -> object:
    """What is said of each network that cannot be trained."""

    def fixed(num_classes: int, _size: int) -> keras.Model:
        return functional(num_classes, 64, body=layers.Flatten())

    none: Any = lambda _num_classes, _size: None  # noqa: E731
    said: list[str] = []
    for build in (none, fixed):
        try:
            make_network(build, CLASSES, SIZE, batch=4)
            said.append("nothing")
        except TrainingError as error:
            said.append(str(error))
    return said


def train(framework: str, name: str, *options: str) -> int:
    built: list[keras.Model] = []

    def build(num_classes: int, size: int) -> keras.Model:
        built.append(NETWORKS[name](num_classes, size))
        return built[-1]

    code = tf_tiny.PROGRAMS[framework].main(options, program=name, build=build)
    if name == "differing":
        own = [int(each.numpy()) for each in built[-1].get_layer("own").weights]
        # As where Python takes its modules apart: who ends at once may hold what another still receives.
        Path(f"ended-{os.environ['RANK']}").touch()
        while len([*Path().glob("ended-*")]) < 2:
            time.sleep(0.01)
        print(json.dumps([own, built[-1].get_layer("known").mean.numpy().tolist()]))
    return code


def main(argv: Sequence[str]) -> int:
    what, *rest = argv
    if what == "train":
        return train(*rest)
    print(json.dumps({name: kept(name) for name in rest} if what == "kept" else refused()))
    return 0
