"""Writes a network's weights as safetensors with a description beside them, and reads both again.

outputs/model/NAME.safetensors   ResNet-50's weights as torchvision names and shapes them, so that one
                                 file serves all three frameworks, as those of others that consist of
                                 the same layers only; another network's by Keras's path
outputs/model/NAME.json          trainer.common.model_about
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
    why_new_head,
    write_about,
)
from trainer.common.whole_file import write_whole
from trainer.tf.network import FusedBatchNorm
from trainer.tf.state import by_path, file_array, take_effect

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


def load_pretrained(
    network: keras.Model, path: Path, *, classes: Sequence[str], say: Callable[[str], None]
) -> str:
    """Load pretrained weights; a head for other classes than these stays as it is, and says so.

    Gives why it stays as it is, or nothing. Raises TrainingError where the file holds another network's.
    """
    weights, wanted, unknown = _read(path), weights_of(network), ""
    head = _head(network, len(classes))
    num_outputs = _num_outputs(head, weights, wanted)
    if num_outputs:
        unknown = why_new_head(path, num_outputs, classes)
    if unknown:
        say(f"{unknown}: a new head")
        weights |= {name: wanted[name] for name, _, _ in head}
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
        weights[name] = file_array(variable.numpy().transpose(axes))
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
    except KeyError as kind:  # of safetensors, for what NumPy has no type of
        message = f"no weights can be read from `{path}`: NumPy has no numbers of the kind {kind}"
        raise TrainingError(message, hint="the same weights saved as fp32") from None


def _fill(network: keras.Model, path: Path, weights: Arrays, *, hint: str) -> None:
    wanted = weights_of(network)
    # Files of earlier versions hold a scalar as a vector of one.
    scalars = {
        name: weights[name].reshape(())
        for name, each in wanted.items()
        if not each.shape and name in weights and weights[name].shape == (1,)
    }
    weights = weights | scalars
    require_shapes(path, weights, wanted, hint=hint)
    for name, variable, axes in _named(network):
        variable.assign(weights[name].transpose(_inverse(axes)).astype(variable.dtype))
    take_effect(network)


def _inverse(axes: Sequence[int]) -> Sequence[int]:
    return [axes.index(each) for each in range(len(axes))]


def _head(network: keras.Model, num_classes: int) -> list[Named]:
    """Give the weights of the last dense layer, its kernel first; none if it has no output for each class."""
    dense = [each for each in network.layers if isinstance(each, keras.layers.Dense)]
    if not dense or dense[-1].units != num_classes:
        return []
    own = [id(each) for each in dense[-1].weights]
    return [each for each in _named(network) if id(each[1]) in own]


def _num_outputs(head: Sequence[Named], weights: Arrays, wanted: Arrays) -> int:
    """Count the outputs of a file's head; 0 where it has none that takes as many inputs."""
    if not head:
        return 0
    name, _, axes = head[0]
    found = weights[name].shape if name in weights else ()
    place = axes.index(1)
    if len(found) != len(axes) or found[1 - place] != wanted[name].shape[1 - place]:
        return 0
    return found[place]


def _named(network: keras.Model) -> list[Named]:
    """Name all weights as torchvision does, where it has a name for each of them; else by their path."""
    pairs = list(_torch_names(network))
    if len({name for name, _, _ in pairs}) == len(pairs) == len(network.weights):
        return pairs
    named = by_path(network.weights)
    return [(name, each, tuple(range(len(each.shape)))) for name, each in named.items()]


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
