"""Runs parts of a training recipe in the image's Python: optimizers, losses, votes, networks."""

from __future__ import annotations

import json

import torch
from torch import nn

from trainer.common.errors import TrainingError
from trainer.pytorch.guard import require_whole_sums
from trainer.pytorch.labels import LOSSES, mix
from trainer.pytorch.networks import build_network
from trainer.pytorch.optimizers import Lamb


def lamb() -> object:
    """Two steps on one tensor that decays and one that does not."""
    decaying, plain = torch.tensor([3.0, 4.0]), torch.tensor([1.0])
    groups = [
        {"params": [decaying], "weight_decay": 0.1},
        {"params": [plain], "weight_decay": 0.0},
    ]
    optimizer = Lamb(groups, lr=0.01)
    for gradients in (([0.5, -1.0], [2.0]), ([0.25, 0.5], [-1.0])):
        decaying.grad, plain.grad = (torch.tensor(each) for each in gradients)
        optimizer.step()
    return [decaying.tolist(), plain.tolist()]


def losses() -> object:
    """Both losses of numbers and of shares of classes."""
    scores, labels = torch.tensor([[2.0, 0.0, -1.0], [0.5, 1.5, 0.0]]), torch.tensor([0, 2])
    shares = nn.functional.one_hot(labels, 3).float()
    return {
        name: [loss(scores, each, 0.1).item() for each in (labels, shares)]
        for name, loss in LOSSES.items()
    }


def mixed() -> object:
    """Pictures of one value each: what is left of them, and the shares of their labels."""
    torch.manual_seed(1)
    images = torch.tensor([0.0, 1.0]).view(2, 1, 1, 1).expand(2, 3, 8, 8).contiguous()
    found = {}
    for name, alphas in (("mixup", (1.0, 0.0)), ("cutmix", (0.0, 1.0))):
        seen, shares = mix(
            images, torch.tensor([0, 1]), mixup=alphas[0], cutmix=alphas[1], num_classes=3
        )
        found[name] = [seen.mean(dim=(1, 2, 3)).tolist(), shares.tolist(), seen.unique().numel()]
    return found


def votes() -> object:
    """What is said of Horovod's variable, by strategy and value."""
    said = {}
    for strategy in ("horovod", "ddp"):
        for value in ("1", "0", ""):
            try:
                require_whole_sums(strategy, {"HOROVOD_ENABLE_ASYNC_COMPLETION": value})
            except TrainingError as error:
                said[f"{strategy}/{value}"] = str(error)
    return said


def networks() -> object:
    """The scores' shape of some networks by name, and what is said of one that is none."""
    found: dict[str, object] = {}
    for name, size in (("squeezenet1_1", 64), ("vit_b_32", 64), ("googlenet", 64)):
        with torch.device("meta"):  # shapes alone: some take seconds to fill their weights
            scores = build_network(name, 5, size)(torch.zeros(2, 3, size, size))
        found[name] = list(scores.shape)
    try:
        build_network("resnet51", 5, 64)
    except TrainingError as error:
        found["resnet51"] = str(error)
    return found


if __name__ == "__main__":
    print(json.dumps({each.__name__: each() for each in (lamb, losses, mixed, votes, networks)}))
