"""Takes steps with a network, alone or as one of the ranks; rank 0 prints images/s of all together.

    steps_torch.py --net mnist --batch 64 --strategy horovod [--steps N]

The data are one batch of noise: what is timed is the step and what ranks say to each other.
"""

from __future__ import annotations

import argparse
import os
import time

import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional

from trainer.common.memory import keep_freed_memory
from trainer.common.world import RankArguments, World
from trainer.pytorch import mnist
from trainer.pytorch.strategy import make_strategy

CPU = torch.device("cpu")
NETS = {
    "mnist": (mnist.build_network, (1, 28, 28), 10),
    "resnet50": (torchvision.models.resnet50, (3, 224, 224), 1000),
}


def make_batch(net: str, batch: int) -> tuple[Tensor, Tensor]:
    _, shape, num_classes = NETS[net]
    return torch.randn(batch, *shape), torch.randint(num_classes, (batch,))


def take_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor
) -> Tensor:
    loss = functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--net", choices=NETS)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--strategy", choices=["single", "ddp", "horovod"])
    parser.add_argument("--dist-url")
    parser.add_argument("--steps", type=int)
    options = parser.parse_args()
    keep_freed_memory(os.environ)  # as our programs do
    world = World.from_environment(arguments=RankArguments(dist_url=options.dist_url))
    strategy = make_strategy(options.strategy, world)
    torch.set_num_threads(world.num_threads)
    strategy.init(world, CPU)
    network = NETS[options.net][0]()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    model, optimizer = strategy.wrap(network, optimizer)
    images, labels = make_batch(options.net, options.batch)
    num_warmup = max(2, options.steps // 5)
    for _ in range(num_warmup):
        take_step(model, optimizer, images, labels)
    strategy.barrier()
    began_s = time.perf_counter()
    for _ in range(options.steps):
        take_step(model, optimizer, images, labels)
    strategy.barrier()
    took_s = time.perf_counter() - began_s
    if world.is_main:
        print(options.steps * options.batch * world.size / took_s)
    strategy.shutdown()


if __name__ == "__main__":
    main()
