"""Starts a PyTorch program as one of the ranks."""

from __future__ import annotations

from collections.abc import Callable

import torch

from trainer.common.program import run_ranks
from trainer.common.training_options import TrainingOptions
from trainer.common.world import RankArguments, World
from trainer.pytorch.strategy import Ranks, Strategy, StrategyName, make_strategy


def run_program(
    options: TrainingOptions,
    strategy: StrategyName | None,
    train: Callable[[Ranks], None],
    arguments: RankArguments | None = None,
) -> int:
    """Train as one of the ranks; gives the exit code (trainer.common.program)."""

    def make(world: World) -> Strategy:
        torch.set_num_threads(world.num_threads)
        return make_strategy(strategy, world)

    return run_ranks(options, make, train, arguments)
