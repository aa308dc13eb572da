"""Converts a network's and its optimizer's state to checkpoint files and back; digests weights.

model.safetensors       weights by Keras's path; batch statistics as rank 0 has them
optimizer.safetensors   variables by path: momenta, steps, the rate, the loss scale
ranks.safetensors       by `<rank>/rng` and `<rank>/buffers`

The second variable of a path is `PATH#2`. bfloat16 is written as fp32: NumPy's reader has no bfloat16.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from trainer.common.errors import TrainingError

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A copy of the whole state in the CPU's memory; training may go on beside it."""

    model: Arrays
    optimizer: Arrays
    ranks: Arrays
    weights: frozenset[str] = frozenset()

    def files(self) -> dict[str, bytes]:
        """Give the checkpoint's files; raises TrainingError where a weight is not finite.

        A loss may still have been finite when its gradients were not: to keep what came of them
        would in the end replace every checkpoint that one could go on from.
        """
        for name in sorted(self.weights):
            if not np.isfinite(self.model[name]).all():
                message = f"training has diverged: weights of {name} are not finite"
                raise TrainingError(message)
        return {
            "model.safetensors": save(self.model),
            "optimizer.safetensors": save(self.optimizer),
            "ranks.safetensors": save(self.ranks),
        }


def read_files(files: Mapping[str, bytes]) -> Snapshot:
    """Give the snapshot that the files were made of; raises KeyError or ValueError for others."""
    try:
        return Snapshot(
            model=load(files["model.safetensors"]),
            optimizer=load(files["optimizer.safetensors"]),
            ranks=load(files["ranks.safetensors"]),
        )
    except SafetensorError as error:
        message = f"no tensors: {error}"
        raise ValueError(message) from None


def take_snapshot(
    network: keras.Model, optimizer: keras.optimizers.Optimizer, *, ranks: Arrays
) -> Snapshot:
    """Copy the state; `ranks` holds what the ranks differ in."""
    learning = {id(each) for each in network.trainable_variables}
    named = by_path(network.weights)
    return Snapshot(
        model=_values(network.weights),
        optimizer=_values(optimizer.variables),
        ranks=ranks,
        weights=frozenset(name for name, each in named.items() if id(each) in learning),
    )


def restore_snapshot(
    snapshot: Snapshot, network: keras.Model, optimizer: keras.optimizers.Optimizer
) -> None:
    """Put the state back, in place; raises TrainingError where it is another network's."""
    for kind, variables, kept in (
        ("network", network.weights, snapshot.model),
        ("optimizer", optimizer.variables, snapshot.optimizer),
    ):
        found = by_path(variables)
        odd = sorted(found.keys() ^ kept.keys())
        odd += [path for path in found if path in kept and kept[path].shape != found[path].shape]
        if odd:
            message = f"the checkpoint is of another {kind}: {odd[0]} does not fit"
            raise TrainingError(message, hint="another --checkpoint-dir")
        for path, variable in found.items():
            variable.assign(kept[path])
    take_effect(network)


def take_effect(network: keras.Model) -> None:
    """Have weights that were set take effect in layers that compute with constants made of them.

    Such as keras.layers.Normalization; before a graph is made, which would hold those of before.
    """
    for layer in network._flatten_layers():  # noqa: SLF001 (`layers` leaves out those within others)
        if hasattr(layer, "finalize_state"):
            layer.finalize_state()


def by_path(variables: Iterable[Any]) -> dict[str, Any]:
    """Give the variables by their paths, in their order; the second one of a path is `PATH#2`."""
    found: dict[str, Any] = {}
    for variable in variables:
        name, number = variable.path, 1
        while name in found:
            number += 1
            name = f"{variable.path}#{number}"
        found[name] = variable
    return found


def file_array(values: np.ndarray) -> np.ndarray:
    """Copy values in the layout and the kind of number that safetensors writes, and reads again."""
    return np.array(values, np.float32 if values.dtype.name == "bfloat16" else None, order="C")


def rank_state(network: keras.Model) -> Arrays:
    """Copy what this rank has of its own, flat: generators of random numbers, batch statistics."""
    generators = [variable.numpy().ravel() for variable in _generators(network)]
    statistics = [variable.numpy().ravel() for variable in float_statistics(network)]
    return {
        "rng": np.concatenate([np.zeros(0, np.int64), *generators], dtype=np.int64),
        "buffers": np.concatenate([np.zeros(0, np.float32), *statistics], dtype=np.float32),
    }


def restore_rank_state(own: Mapping[str, np.ndarray], network: keras.Model) -> None:
    """Put this rank's generators and statistics back; raises TrainingError for another network's."""
    _write(_generators(network), own["rng"], earlier=_not_trained(network, "int"))
    write_statistics(network, own["buffers"])


def seed_generators(network: keras.Model, key: str) -> None:
    """Reseed the network's generators, such as a dropout layer's, from `key`."""
    rng = random.Random(key)
    for variable in _generators(network):
        numbers = [rng.getrandbits(31) for _ in range(math.prod(variable.shape))]
        variable.assign(np.array(numbers).reshape(variable.shape).astype(variable.dtype))


def float_statistics(network: keras.Model) -> Sequence[Any]:
    """Give the running statistics, in which ranks differ; also those of a part that is frozen.

    The weights of such a part are none. Once frozen they look alike: only its layers know which are.
    """
    layers = network._flatten_layers()  # noqa: SLF001 (`layers` leaves out those within others)
    weights = {id(each) for layer in layers for each in layer._trainable_variables}  # noqa: SLF001
    return [each for each in _not_trained(network, "float") if id(each) not in weights]


def other_statistics(network: keras.Model) -> Sequence[Any]:
    """Give weights that are no floating-point numbers, such as counts: what training by gradients leaves alone."""
    return [each for each in network.non_trainable_weights if "float" not in each.dtype]


def write_statistics(network: keras.Model, values: np.ndarray) -> None:
    """Fill the running statistics from one flat array; raises TrainingError for another network's."""
    _write(float_statistics(network), values, earlier=_not_trained(network, "float"))


def weights_digest(network: keras.Model) -> bytes:
    """Hash paths and values (statistics too) by SHA-256, in the order of paths."""
    digest = hashlib.sha256()
    for path, value in sorted(_values(network.weights).items()):
        digest.update(path.encode())
        digest.update(value.tobytes())
    return digest.digest()


def _generators(network: keras.Model) -> Sequence[Any]:
    """List the states of Keras's generators, such as a dropout layer's; they are no weights."""
    weights = {id(each) for each in network.weights}
    return [each for each in _not_trained(network, "int") if id(each) not in weights]


def _not_trained(network: keras.Model, dtype: str) -> Sequence[Any]:
    """List what training by gradients leaves alone, of the kind of number."""
    return [each for each in network.non_trainable_variables if dtype in each.dtype]


def _write(variables: Sequence[Any], values: np.ndarray, *, earlier: Sequence[Any]) -> None:
    """Fill the variables from one flat array.

    In checkpoints of earlier versions it holds those of `earlier`, which `variables` are some of.
    """
    held = variables if values.size == _size(variables) else earlier
    if values.size != _size(held):
        message = "the checkpoint is of another network: what ranks differ in does not fit"
        raise TrainingError(message, hint="another --checkpoint-dir")
    wanted = {id(each) for each in variables}
    start = 0
    for variable in held:
        size = math.prod(variable.shape)
        if id(variable) in wanted:
            part = values[start : start + size].reshape(variable.shape)
            variable.assign(part.astype(variable.dtype))
        start += size


def _size(variables: Iterable[Any]) -> int:
    return sum(math.prod(each.shape) for each in variables)


def _values(variables: Iterable[Any]) -> Arrays:
    """Copy the values as they are written."""
    return {name: file_array(each.numpy()) for name, each in by_path(variables).items()}
