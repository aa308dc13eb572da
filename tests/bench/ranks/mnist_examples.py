"""MNIST as PyTorch's own examples train it, under DDP: the peer of trainer.pytorch.mnist.

Each picture is read by itself, made a PIL image, a tensor, normalised, and collated into a batch.
Started by torchrun; rank 0 prints images/s of all ranks, over the epochs after the first.
"""

from __future__ import annotations

import argparse
import gzip
import time
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor, distributed, nn, optim
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from torchvision import transforms


class Pictures(Dataset):
    """IDX files as torchvision's MNIST gives them: a transformed PIL image and its class."""

    def __init__(self, folder: Path) -> None:
        self.images = read(folder / "train-images-idx3-ubyte", 16).view(-1, 28, 28)
        self.labels = read(folder / "train-labels-idx1-ubyte", 8)
        self.transform = transforms.Compose(
            [transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))]
        )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = Image.fromarray(self.images[index].numpy(), mode="L")
        return self.transform(image), int(self.labels[index])


def read(path: Path, head: int) -> Tensor:
    data = path.read_bytes() if path.exists() else gzip.decompress(Path(f"{path}.gz").read_bytes())
    return torch.frombuffer(bytearray(data[head:]), dtype=torch.uint8)


class Net(nn.Module):
    """The examples' network."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3, 1), nn.Conv2d(32, 64, 3, 1)
        self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)

    def forward(self, pixels: Tensor) -> Tensor:
        hidden = functional.relu(self.conv1(pixels))
        hidden = functional.max_pool2d(functional.relu(self.conv2(hidden)), 2)
        hidden = torch.flatten(self.dropout1(hidden), 1)
        hidden = self.dropout2(functional.relu(self.fc1(hidden)))
        return functional.log_softmax(self.fc2(hidden), dim=1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path)
    parser.add_argument("--batch-size", type=int, help="of each rank")
    parser.add_argument("--epochs", type=int)
    options = parser.parse_args()
    distributed.init_process_group("gloo")
    torch.manual_seed(1)
    pictures = Pictures(options.data)
    sampler = DistributedSampler(pictures)
    loader = DataLoader(pictures, batch_size=options.batch_size, sampler=sampler)
    model = DistributedDataParallel(Net())
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    schedule = optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    began_s = 0.0
    for epoch in range(options.epochs):
        if epoch == 1:
            distributed.barrier()
            began_s = time.perf_counter()
        sampler.set_epoch(epoch)
        model.train()
        for images, labels in loader:
            optimizer.zero_grad()
            functional.nll_loss(model(images), labels).backward()
            optimizer.step()
        schedule.step()
    distributed.barrier()
    took_s = time.perf_counter() - began_s
    if distributed.get_rank() == 0:
        print((options.epochs - 1) * len(pictures) / took_s)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
