"""Builds torchvision's residual networks, loads weights into them, and groups their parameters."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import torch
from torch import Tensor, nn

from trainer.common.errors import TrainingError
from trainer.common.model_about import require_shapes, why_new_head
from trainer.data.prepare.published import WEIGHTS
from trainer.data.prepare.weights import by_hand, weights_name
from trainer.pytorch.state import as_state_of, load_weights

if TYPE_CHECKING:  # programs whose network is their own train without torchvision
    from torchvision.models import ResNet

NetworkName = Literal["resnet18", "resnet34", "resnet50", "resnet101", "resnet152"]
SUFFIXES = (".pth", ".safetensors")
# The side of the pictures that all of torchvision's classifiers take.
USUAL_SIZE = 224
# Networks whose training has outputs beside the scores, of heads that we leave out. torchvision's files of
# them were learnt from pictures scaled to -1 to 1, which it does in the network; so do we, whatever they
# begin with, so that a saved model needs not say it.
INCEPTIONS = ("googlenet", "inception_v3")
PLAIN = {"aux_logits": False, "transform_input": True, "init_weights": True}
AUXILIARY = ("aux1.", "aux2.", "AuxLogits.")
# `--weights none`: train from scratch.
NO_WEIGHTS = Path("none")


def build_resnet(name: NetworkName, num_classes: int) -> ResNet:
    """Make the network; each block begins as the identity.

    Source: He et al. 2015, arXiv 1512.03385 (with the stride in the 3x3 convolution); Goyal et al.
    2017, arXiv 1706.02677 (the last batch norm of a block starts at 0).
    """
    from torchvision.models import get_model

    return get_model(name, weights=None, num_classes=num_classes, zero_init_residual=True)


def build_network(name: str, num_classes: int, image_size: int) -> nn.Module:
    """Make a classifier of torchvision, or of timm where it is installed, with random weights.

    Raises TrainingError where neither has one of this name, or it takes no pictures of this size.
    """
    from torchvision import models

    if name in get_args(NetworkName):
        return build_resnet(cast("NetworkName", name), num_classes)
    if name in models.list_models(models):
        make = partial(models.get_model, name, weights=None, num_classes=num_classes)
        if name.startswith("vit_"):  # made for one size
            with _size_told(name, image_size, USUAL_SIZE):
                return make(image_size=image_size)
        return _tried(name, make(**PLAIN if name in INCEPTIONS else {}), image_size, USUAL_SIZE)
    try:
        import timm
    except ImportError:
        where = "torchvision has, and timm is not installed"
    else:
        if timm.is_model(name):
            made = timm.create_model(name, num_classes=num_classes)
            return _tried(name, made, image_size, made.pretrained_cfg["input_size"][-1])
        where = "torchvision or timm has"
    near = difflib.get_close_matches(name, models.list_models(models), n=1)
    message = f"--network {name} is no classifier that {where}"
    raise TrainingError(message, hint=f"--network {near[0] if near else 'resnet50'}")


def _tried(name: str, network: nn.Module, image_size: int, usual_size: int) -> nn.Module:
    """Give the network, once it has looked at a picture where that is not of its usual size."""
    if image_size != usual_size:
        with _size_told(name, image_size, usual_size), torch.no_grad():
            network.eval()(torch.zeros(1, 3, image_size, image_size))
    return network.train()


@contextlib.contextmanager
def _size_told(name: str, image_size: int, usual_size: int) -> Generator[None]:
    """Raise TrainingError in place of the errors by which networks refuse a size of pictures."""
    try:
        yield
    except (AssertionError, RuntimeError, ValueError) as error:
        if image_size == usual_size:
            raise
        why = str(error).partition("\n")[0]
        size = f"{image_size} x {image_size} pixels"
        message = f"--network {name} does not take pictures of {size}: {why}"
        hint = f"--image-size {usual_size}, or another network"
        raise TrainingError(message, hint=hint) from None


def find_weights(path: Path | None, folder: Path, *, option: str, is_made: bool) -> Path | None:
    """Find the file that training begins with, here or beside the data in `folder`; None from scratch.

    Data that is made for a try-out needs no weights; on other data training from scratch has to be
    asked for by `none`. Raises TrainingError where it is not, and where the file is in no place.
    """
    if path == NO_WEIGHTS or (path is None and is_made):
        return None
    from_scratch = f"{option} none trains from scratch"
    if path is None:
        message = f"{option} is not given, and training from scratch has to be asked for"
        hint = f"{option} FILE, which `launch data prepare` puts beside the data; {from_scratch}"
        raise TrainingError(message, hint=hint)
    for place in (path, folder / path):
        if place.exists():
            return place
    message = f"there are no weights `{path}`, neither here nor beside the data in `{folder}`"
    others = sorted(each.name for each in folder.glob("*") if each.suffix in SUFFIXES)
    if others:
        hint = f"{option} {others[0]}, which is there; {from_scratch}"
        raise TrainingError(message, hint=hint)
    published = [each for each in WEIGHTS.values() if weights_name(each) == path.name]
    where = by_hand(published[0], folder) if published else f"put the file into {folder}"
    named = f" as {path.name}" if published else ""
    raise TrainingError(message, hint=f"{where}{named}, and push it with the data; {from_scratch}")


def load_pretrained(
    network: nn.Module, path: Path, *, classes: Sequence[str], say: Callable[[str], None]
) -> str:
    """Load pretrained weights; a head for other classes than these stays as it is, and says so.

    The head is the network's last layer, if it has an output for each class. Gives why it stays as it is, or nothing. Raises TrainingError
    where the file holds another network's.
    """
    weights = _as_built_here(network, load_weights(path))
    wanted = network.state_dict()
    head = f"{list(wanted)[-1].rpartition('.')[0]}."
    matrix = f"{head}weight"
    unknown = ""
    is_head = matrix in wanted and wanted[matrix].shape[:1] == (len(classes),)
    if is_head and matrix in weights and weights[matrix].shape[1:] == wanted[matrix].shape[1:]:
        unknown = why_new_head(path, len(weights[matrix]), classes)
        if unknown:
            say(f"{unknown}: a new head")
            weights = {key: value for key, value in weights.items() if not key.startswith(head)}
            weights |= {key: value for key, value in wanted.items() if key.startswith(head)}
    _load(network, weights, path, hint="the network's own weights, as torchvision names them")
    return unknown


def _as_built_here(network: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Give weights of one of torchvision's files by the names that the network has today.

    Leaves out auxiliary heads, which evaluation never looks at. Renames DenseNet's layers by torchvision's
    own function, which asks for the file and fills the network itself: it gets stand-ins of both.
    """
    from torchvision.models import DenseNet, GoogLeNet, Inception3
    from torchvision.models.densenet import _load_state_dict as load_renamed

    named = dict(weights)
    if isinstance(network, (GoogLeNet, Inception3)) and not network.aux_logits:
        return {key: value for key, value in named.items() if not key.startswith(AUXILIARY)}
    if isinstance(network, DenseNet):
        renamed: dict[str, Tensor] = {}
        source = SimpleNamespace(get_state_dict=lambda **_: named)
        load_renamed(SimpleNamespace(load_state_dict=renamed.update), source, progress=False)
        return renamed
    return named


def load_weights_of(network: nn.Module, path: Path, *, hint: str) -> None:
    """Load weights of exactly this network; raises TrainingError with `hint` for another one's."""
    _load(network, load_weights(path), path, hint=hint)


def _load(network: nn.Module, weights: Mapping[str, Tensor], path: Path, *, hint: str) -> None:
    require_shapes(path, weights, network.state_dict(), hint=hint)
    network.load_state_dict(as_state_of(network, weights), strict=False)


def parameter_groups(network: nn.Module, *, weight_decay: float) -> list[dict[str, Any]]:
    """Split the parameters in two groups: batch norms and biases do not decay, nor adapt (LAMB)."""
    decaying = [each for each in network.parameters() if each.ndim > 1]
    others = [each for each in network.parameters() if each.ndim <= 1]
    return [
        {"params": decaying, "weight_decay": weight_decay, "adapts": True},
        {"params": others, "weight_decay": 0.0, "adapts": False},
    ]
