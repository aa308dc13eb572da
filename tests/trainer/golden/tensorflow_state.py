"""Made the TensorFlow checkpoint of checkpoint-format-1, with TensorFlow 2.18 and Keras 3.15; reads it.

    PYTHONPATH=. python tests/trainer/golden/tensorflow_state.py write FOLDER
    PYTHONPATH=. python tests/trainer/golden/tensorflow_state.py read FOLDER tf|keras

with the TensorFlow runtime's Python. It is never made again; a new format gets a folder of its own.
What a training would go on with is printed as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from trainer.common.checkpoint import CheckpointFolder
from trainer.tf.network import FusedBatchNorm
from trainer.tf.optimizer import make_optimizer
from trainer.tf.state import (
    Arrays,
    rank_state,
    read_files,
    restore_rank_state,
    restore_snapshot,
    seed_generators,
    take_snapshot,
)


def build() -> tuple[keras.Model, keras.optimizers.Optimizer]:
    """A network with parameters, statistics and a generator; an optimizer with a loss scale."""
    inputs = keras.Input((2, 2, 3))
    x = keras.layers.Conv2D(2, 1, name="conv")(inputs)
    x = keras.layers.Flatten(name="flatten")(FusedBatchNorm(name="bn")(x))
    x = keras.layers.Dropout(0.5, seed=1, name="dropout")(x)
    network = keras.Model(inputs, keras.layers.Dense(1, name="fc")(x))
    optimizer = make_optimizer(network, precision="fp16", momentum=0.9, weight_decay=0.1)
    optimizer.learning_rate = 0.0625
    return network, optimizer


def write(folder: Path) -> None:
    keras.utils.set_random_seed(7)
    network, optimizer = build()
    ranks: Arrays = {}
    for rank in range(2):
        seed_generators(network, f"7/0/{rank}")
        for _ in range(3):
            weights = [each.value for each in network.trainable_variables]
            with tf.GradientTape() as tape:
                scores = network(tf.random.normal((4, 2, 2, 3)), training=True)
                loss = optimizer.scale_loss(tf.reduce_mean(scores**2))
            optimizer.apply(tape.gradient(loss, weights), network.trainable_variables)
        ranks |= {f"{rank}/{key}": value for key, value in rank_state(network).items()}
    about = {
        "recipe": {"program": "golden", "seed": 7},
        "world_size": 2,
        "position": {"step": 6, "epoch": 1, "batch": 2},
    }
    snapshot = take_snapshot(network, optimizer, ranks=ranks)
    CheckpointFolder(folder).write(6, snapshot.files(), about)


def read(folder: Path) -> None:
    """Restore as rank 1 of 2."""
    found = CheckpointFolder(folder).newest(print)
    assert found is not None
    network, optimizer = build()
    snapshot = read_files(found.files)
    restore_snapshot(snapshot, network, optimizer)
    own = {
        key.removeprefix("1/"): value
        for key, value in snapshot.ranks.items()
        if key.startswith("1/")
    }
    restore_rank_state(own, network)
    images = np.arange(24, dtype=np.float32).reshape(2, 2, 2, 3)
    told = {
        "about": found.about,
        "network": {each.path: rounded(each) for each in network.variables},
        "optimizer": {each.path: rounded(each) for each in optimizer.variables},
        # Which neurons the dropout takes next.
        "next_scores": rounded(network(images, training=True)),
    }
    print(json.dumps(told))


def rounded(value: tf.Tensor) -> list[float]:
    return [round(float(each), 5) for each in value.numpy().ravel()]


def main(argv: Sequence[str]) -> None:
    """Write or read the state in a folder."""
    what, folder = argv
    {"write": write, "read": read}[what](Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
