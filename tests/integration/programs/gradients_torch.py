"""Writes the loss and the gradients of one global batch, on any number of ranks, with any strategy.

The CNN of trainer.pytorch.mnist without dropout. Each rank begins with other weights: rank 0's count.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from torch.nn import functional

from trainer.common.options import parse_options
from trainer.common.sharding import shard
from trainer.common.world import RankArguments, World
from trainer.pytorch.mnist import build_network
from trainer.pytorch.strategy import StrategyName, make_strategy

NUM_SAMPLES = 14  # four ranks get 4, 4, 3 and 3 of them


@dataclass(frozen=True, kw_only=True)
class Options:
    strategy: Annotated[StrategyName | None, "how ranks work together"] = None
    dist_url: Annotated[str | None, "where DDP's ranks meet"] = None


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_options(Options, argv)
    world = World.from_environment(arguments=RankArguments(dist_url=options.dist_url))
    strategy = make_strategy(options.strategy, world)
    strategy.init(world, torch.device("cpu"))
    torch.manual_seed(world.rank)
    network = build_network()
    for module in network.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    optimizer = torch.optim.SGD(network.parameters(), lr=0.0)
    model, optimizer = strategy.wrap(network, optimizer)

    generator = torch.Generator().manual_seed(1)
    images = torch.randn(NUM_SAMPLES, 1, 28, 28, generator=generator)
    labels = torch.randint(10, (NUM_SAMPLES,), generator=generator)
    mine = shard(list(range(NUM_SAMPLES)), world)
    loss_sum = functional.cross_entropy(model(images[mine]), labels[mine], reduction="sum")
    (loss_sum * (world.size / NUM_SAMPLES)).backward()
    optimizer.step()
    loss = strategy.sum(loss_sum.detach().to(torch.float64)).item() / NUM_SAMPLES
    gradients = [parameter.grad for parameter in network.parameters()]
    if world.is_main:
        np.save("gradients.npy", torch.cat([each.flatten() for each in gradients]).numpy())
        Path("loss.json").write_text(json.dumps(loss))
    strategy.barrier()
    strategy.shutdown()
    return 0
