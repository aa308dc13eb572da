"""Loads files with the names of torchvision's own into networks that we build; run in the zygote.

main([])    prints what it found as JSON
"""

from __future__ import annotations

import copy
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import save, save_file
from torch import Tensor, nn
from torchvision import models

from trainer.pytorch.networks import build_network, load_pretrained, load_weights_of
from trainer.pytorch.state import (
    read_files,
    restore_snapshot,
    save_weights,
    take_snapshot,
    weights_digest,
)

NUM_CLASSES, SIDE = 5, 80


def scores(folder: Path) -> dict[str, object]:
    """Whether our networks, with a file of theirs, give the scores of torchvision's networks with it."""
    as_published = {"aux_logits": True, "transform_input": True, "init_weights": False}
    tiny = models.DenseNet(4, (2, 2), 8, num_classes=NUM_CLASSES)
    theirs: Mapping[str, nn.Module] = {
        "googlenet": models.googlenet(num_classes=NUM_CLASSES, **as_published),
        "inception_v3": models.inception_v3(num_classes=NUM_CLASSES, **as_published),
        "mnasnet0_5": models.mnasnet0_5(num_classes=NUM_CLASSES),
        "densenet": tiny,
    }
    found: dict[str, object] = {}
    images = torch.randn(2, 3, SIDE, SIDE)
    for name, network in theirs.items():
        see(network, images)
        network.half().float()  # a file of half the size holds the same values
        file = folder / f"{name}.safetensors"
        save_file(
            {old_name(key): in_half(value) for key, value in network.state_dict().items()}, file
        )
        ours = copy.deepcopy(tiny) if network is tiny else build_network(name, NUM_CLASSES, SIDE)
        blank(ours)
        unknown = load_pretrained(ours, file, classes=["one"] * NUM_CLASSES, say=lambda _: None)
        with torch.no_grad():
            pair = [each.eval()(images) for each in (ours, network)]
        found[name] = [unknown, torch.allclose(*pair, rtol=1e-4, atol=1e-5)]
    return found


def see(network: nn.Module, images: Tensor) -> None:
    """Fit the norms to the pictures; without, what is in them is lost on the way through the layers."""
    network.eval()
    for each in network.modules():
        if isinstance(each, nn.BatchNorm2d):
            each.train().momentum = None
    with torch.no_grad():
        network(images)


def old_name(key: str) -> str:
    """Name a layer as DenseNet's were named when their files were made."""
    return re.sub(r"(denselayer\d+\.(?:norm|conv))(\d\.)", r"\1.\2", key)


def in_half(value: Tensor) -> Tensor:
    return value.half() if value.is_floating_point() else value


def blank(network: nn.Module) -> None:
    for each in network.parameters():
        each.data.zero_()


def of_a_version(folder: Path) -> list[bool]:
    """Whether a network that asks which version its state is of takes its own model and checkpoint."""
    network = build_network("mnasnet0_5", NUM_CLASSES, SIDE)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    kept = take_snapshot(network, optimizer, ranks={}).files() | {"ranks.safetensors": save({})}
    by_model, by_checkpoint = (copy.deepcopy(network) for _ in range(2))
    blank(by_model)
    blank(by_checkpoint)
    save_weights(network, folder / "model.safetensors")
    load_weights_of(by_model, folder / "model.safetensors", hint="")
    again = torch.optim.SGD(by_checkpoint.parameters(), lr=0.1)
    restore_snapshot(read_files(kept), by_checkpoint, again)
    wanted = weights_digest(network)
    return [weights_digest(each) == wanted for each in (by_model, by_checkpoint)]


def main(_argv: Sequence[str]) -> None:
    """Print what each found."""
    torch.manual_seed(1)
    found: dict[str, object] = {}
    for check in (scores, of_a_version):
        with tempfile.TemporaryDirectory() as folder:
            found[check.__name__] = check(Path(folder))
    print(json.dumps(found))
