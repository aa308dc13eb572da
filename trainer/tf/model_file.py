"""Writes a network's weights as safetensors with a description beside them, and reads both again.

outputs/model/NAME.safetensors   ResNet-50's weights as torchvision names and shapes them, so that one
                                 file serves all three frameworks; another network's by Keras's path
outputs/model/NAME.json          trainer.common.model_about
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from trainer.common.errors import TrainingError
from trainer.common.model_about import (
    require_classes,
    require_model,
    require_shapes,
    write_about,
)
from trainer.common.whole_file import write_whole
from trainer.tf.network import HEAD, FusedBatchNorm

Arrays = dict[str, np.ndarray]
# Name in a file, variable, and the axes that turn its values into the file's.
Named = tuple[str, Any, tuple[int, ...]]


def write_model(network: keras.Model, path: Path, about: Mapping[str, object]) -> None:
    """Write weights and description, each whole or not at all; raises TrainingError for a full disk."""
    write_about(path, about)
    write_whole(path, save(weights_of(network)))


def load_model(network: keras.Model, path: Path, *, classes: object = None) -> None:
    """Load a model that a training of the same network wrote; `classes` are those of the data.

    Raises TrainingError for none, for another network's, and where a description says other classes.
    """
    require_model(path)
    _fill(
        network, path, _read(path), hint="the model of a run with the same options: outputs/model"
    )
    require_classes(path, classes)


def load_pretrained(network: keras.Model, path: Path, *, say: Callable[[str], None]) -> str:
    """Load pretrained weights; a head for another number of classes stays as it is, and says so.

    Gives why it stays as it is, or nothing. Raises TrainingError where the file holds another network's.
    """
    given, wanted, head = _read(path), weights_of(network), f"{HEAD}.weight"
    weights = _with_own_head(given, wanted)
    unknown = ""
    if weights is not given:
        unknown = f"`{path}` is for {len(given[head])} classes, not {len(wanted[head])}"
        say(f"{unknown}: a new head")
    _fill(
        network,
        path,
        weights,
        hint="weights of this network; ResNet-50's as torchvision names them",
    )
    return unknown


def weights_of(network: keras.Model) -> Arrays:
    """Give the network's weights by their names in a file, shaped as there."""
    weights: Arrays = {}
    for name, variable, axes in _named(network):
        weights[name] = np.ascontiguousarray(variable.numpy().transpose(axes))
        if name.endswith(".running_mean"):
            tracked = name.replace("running_mean", "num_batches_tracked")
            weights[tracked] = np.zeros((), np.int64)
    return weights


def _read(path: Path) -> Arrays:
    try:
        return load(path.read_bytes())
    except (OSError, SafetensorError) as error:
        message = f"no weights can be read from `{path}`: {str(error).splitlines()[0]}"
        raise TrainingError(message, hint="a .safetensors file, as torchvision names it") from None


def _fill(network: keras.Model, path: Path, weights: Arrays, *, hint: str) -> None:
    require_shapes(path, weights, weights_of(network), hint=hint)
    for name, variable, axes in _named(network):
        variable.assign(weights[name].astype(variable.dtype).transpose(np.argsort(axes)))


def _with_own_head(weights: Arrays, wanted: Arrays) -> Arrays:
    """Give the same weights, or those of the network in place of a head for another number of classes."""
    shapes = [
        each[f"{HEAD}.weight"].shape for each in (weights, wanted) if f"{HEAD}.weight" in each
    ]
    if len(shapes) < 2 or shapes[0] == shapes[1] or shapes[0][1:] != shapes[1][1:]:
        return weights
    others = {key: value for key, value in weights.items() if not key.startswith(f"{HEAD}.")}
    return others | {key: value for key, value in wanted.items() if key.startswith(f"{HEAD}.")}


def _named(network: keras.Model) -> list[Named]:
    """Name all weights as torchvision does, where it has names for all of them; else by their path."""
    pairs = list(_torch_names(network))
    if len(pairs) == len(network.weights):
        return pairs
    return [(each.path, each, tuple(range(len(each.shape)))) for each in network.weights]


def _torch_names(network: keras.Model) -> Iterator[Named]:
    """Give torchvision's name of each weight, the variable, and the axes that make it torch's."""
    for layer in network.layers:
        name = layer.name
        if isinstance(layer, keras.layers.Conv2D) and not layer.use_bias:
            yield f"{name}.weight", layer.kernel, (3, 2, 0, 1)
        elif isinstance(layer, FusedBatchNorm):
            yield f"{name}.weight", layer.gamma, (0,)
            yield f"{name}.bias", layer.beta, (0,)
            yield f"{name}.running_mean", layer.moving_mean, (0,)
            yield f"{name}.running_var", layer.moving_variance, (0,)
        elif isinstance(layer, keras.layers.Dense) and layer.use_bias:
            yield f"{name}.weight", layer.kernel, (1, 0)
            yield f"{name}.bias", layer.bias, (0,)
