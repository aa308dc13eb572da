"""Adds up two ranks of which the second never comes: the first waits as long as it was told."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from trainer.common.world import RankArguments, World
from trainer.pytorch.strategy import Ddp


def main(argv: Sequence[str]) -> None:
    """Meet at the address that follows `--dist-url`."""
    url = argv[argv.index("--dist-url") + 1]
    world = World.from_environment(arguments=RankArguments(dist_url=url))
    ranks = Ddp()
    ranks.init(world, torch.device("cpu"))
    if world.rank == 1:
        time.sleep(3600)
    ranks.sum(torch.ones(1))
