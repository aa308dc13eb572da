"""ResNet-50 in TensorFlow, beside what parity_torch.py left in this folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from trainer.tf.model_file import load_pretrained
from trainer.tf.model_file import weights_of as torch_weights
from trainer.tf.network import build_resnet50
from trainer.tf.optimizer import make_optimizer
from trainer.tf.steps import cross_entropy


def main(_argv: Sequence[str]) -> None:
    """Print how far both are from each other."""
    given, stepped = load_file("given.safetensors"), load_file("stepped.safetensors")
    names = [name for name in given if "num_batches" not in name]
    found = load_file("found.safetensors")
    network = build_resnet50(1000, 224)
    load_pretrained(network, Path("given.safetensors"), classes=["one"] * 1000, say=lambda _: None)
    own = torch_weights(network)
    equal = [name for name in names if (own[name] == given[name]).all()]
    far = np.abs(network(found["images"], training=False).numpy() - found["scores"]).max()

    small = build_resnet50(1000, 64)
    # As in torchvision's oldest files, whose norms count no batches.
    save_file({name: given[name] for name in names}, "uncounted.safetensors")
    load_pretrained(
        small, Path("uncounted.safetensors"), classes=["one"] * 1000, say=lambda _: None
    )
    for layer in small.layers:
        if layer.name.endswith("bn3"):
            layer.gamma.assign(layer.gamma * 0.2)
    optimizer = make_optimizer(small, precision="fp32", momentum=0.9, weight_decay=1e-2)
    losses = []
    for rate in (0.01, 0.002):
        optimizer.learning_rate = rate
        with tf.GradientTape() as tape:
            scores = small(found["few"], training=True)
            loss = tf.reduce_mean(cross_entropy(scores, found["labels"], 0.1))
        weights = [each.value for each in small.trainable_variables]
        optimizer.apply(tape.gradient(loss, weights), small.trainable_variables)
        losses.append(float(loss))
    own = torch_weights(small)

    def relative(name: str) -> float:
        change = np.linalg.norm(stepped[name] - given[name])
        return np.linalg.norm(own[name] - stepped[name]) / change

    save_file(own, "of_tf.safetensors")
    print(
        json.dumps(
            {
                "parameters": sum(int(np.prod(each.shape)) for each in network.trainable_variables),
                "num_equal": len(equal),
                "num_names": len(names),
                "same_names": sorted(own) == sorted(stepped),
                "far": float(far),
                "largest": float(np.abs(found["scores"]).max()),
                "losses": losses,
                "wanted": [float(found["loss0"]), float(found["loss1"])],
                "stepped": float(max(relative(name) for name in names)),
            }
        )
    )
