"""Writes a trained model as a file of weights with a description beside it, and reads both again.

outputs/model/NAME.safetensors   the network's state_dict
outputs/model/NAME.json          trainer.common.model_about
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from torch import nn

from trainer.common.model_about import (
    About,
    read_about,
    require_classes,
    require_model,
    write_about,
)
from trainer.pytorch.networks import load_weights_of
from trainer.pytorch.state import save_weights


def write_model(network: nn.Module, path: Path, about: Mapping[str, object]) -> None:
    """Write weights and description; raises TrainingError where the disk refuses."""
    write_about(path, about)
    save_weights(network, path)


def read_model(path: Path, build: Callable[[About], nn.Module]) -> tuple[nn.Module, About]:
    """Give the classifier of this file, built as its description says, in eval mode.

    Raises TrainingError where one of the two is missing, damaged or another network's.
    """
    about = read_about(path)
    network = build(about)
    load_model(network, path)
    return network.eval(), about


def load_model(network: nn.Module, path: Path, *, classes: object = None) -> None:
    """Load a model that a training of the same network wrote; `classes` are those of the data.

    Raises TrainingError for none, for another network's, and where a description says other classes.
    """
    require_model(path)
    load_weights_of(network, path, hint="the model of a run with the same options: outputs/model")
    require_classes(path, classes)
