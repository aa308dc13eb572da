"""Takes one step as a script of torch and torchvision alone does, and ends the process there.

first_step_bare.py mnist FOLDER    the examples' network and optimizer on IDX files
first_step_bare.py resnet50        torchvision's ResNet-50 on noise, 8 pictures of 64 x 64
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from torch import Tensor, nn, optim
from torch.nn import functional


def read(path: Path, head: int) -> Tensor:
    return torch.frombuffer(bytearray(path.read_bytes()[head:]), dtype=torch.uint8)


def mnist(folder: Path) -> tuple[nn.Module, optim.Optimizer, Tensor, Tensor]:
    images = {
        split: read(folder / f"{split}-images-idx3-ubyte", 16).view(-1, 1, 28, 28)
        for split in ("train", "t10k")
    }
    labels = read(folder / "train-labels-idx1-ubyte", 8).long()
    network = nn.Sequential(
        *(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Dropout(0.25), nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5)),
        nn.Linear(128, 10),
    )
    picked = torch.randperm(len(labels))[:64]
    pixels = images["train"][picked].float().div_(255).sub_(0.1307).div_(0.3081)
    return network, optim.Adadelta(network.parameters()), pixels, labels[picked]


def resnet50() -> tuple[nn.Module, optim.Optimizer, Tensor, Tensor]:
    import torchvision

    network = torchvision.models.resnet50(num_classes=10)
    optimizer = optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    return network, optimizer, torch.randn(8, 3, 64, 64), torch.randint(10, (8,))


def main() -> None:
    torch.manual_seed(1)
    made = mnist(Path(sys.argv[2])) if sys.argv[1] == "mnist" else resnet50()
    network, optimizer, images, labels = made
    functional.cross_entropy(network(images), labels).backward()
    optimizer.step()
    os._exit(0)


if __name__ == "__main__":
    main()
