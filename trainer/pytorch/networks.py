"""Builds torchvision's residual networks, loads weights into them, and groups their parameters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from torch import nn
from torchvision.models import ResNet, get_model

from trainer.common.errors import TrainingError
from trainer.pytorch.state import load_weights

NetworkName = Literal["resnet18", "resnet34", "resnet50", "resnet101", "resnet152"]
HEAD = "fc."


def build_resnet(name: NetworkName, num_classes: int) -> ResNet:
    """Make the network; each block begins as the identity.

    Source: He et al. 2015, arXiv 1512.03385 (with the stride in the 3x3 convolution); Goyal et al.
    2017, arXiv 1706.02677 (the last batch norm of a block starts at 0).
    """
    return get_model(name, weights=None, num_classes=num_classes, zero_init_residual=True)


def load_pretrained(network: ResNet, path: Path, *, say: Callable[[str], None]) -> None:
    """Load pretrained weights; a head for another number of classes stays as it is, and says so.

    Raises TrainingError where the file holds another network's.
    """
    weights = load_weights(path)
    wanted = network.state_dict()
    head = f"{HEAD}weight"
    if head in weights and weights[head].shape[1:] == wanted[head].shape[1:]:
        num_classes = len(weights[head])
        if num_classes != len(wanted[head]):
            say(f"`{path}` is for {num_classes} classes, not {len(wanted[head])}: a new head")
            weights = {key: value for key, value in weights.items() if not key.startswith(HEAD)}
            weights |= {key: value for key, value in wanted.items() if key.startswith(HEAD)}
    odd = sorted(set(weights) ^ set(wanted))
    odd += [key for key in wanted if key in weights and weights[key].shape != wanted[key].shape]
    if odd:
        message = f"`{path}` holds weights of another network: {odd[0]} does not fit"
        raise TrainingError(message, hint="the network's own weights, as torchvision names them")
    network.load_state_dict(weights)


def parameter_groups(network: nn.Module, *, weight_decay: float) -> list[dict[str, Any]]:
    """Split the parameters in two groups: batch norms and biases do not decay."""
    decaying = [each for each in network.parameters() if each.ndim > 1]
    others = [each for each in network.parameters() if each.ndim <= 1]
    return [
        {"params": decaying, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
