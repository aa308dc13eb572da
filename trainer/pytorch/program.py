"""What every PyTorch program does around its training: the ranks meet, leave, and give an exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch

from trainer.common.errors import TrainingError
from trainer.common.preemption import EXIT_CODE, Notice, Preempted, events_url
from trainer.common.rundir import RunDir
from trainer.common.training_options import TrainingOptions
from trainer.common.world import RankArguments, World
from trainer.pytorch.strategy import Ranks, StrategyName, make_strategy


def run_program(
    options: TrainingOptions,
    strategy: StrategyName | None,
    train: Callable[[Ranks], None],
    arguments: RankArguments | None = None,
) -> int:
    """Train as one of the ranks; gives the exit code.

    1 with a message on stderr for what the user can mend, 75 once a checkpoint is written after
    a notice to leave. `train` meets the other ranks by `strategy.init`. `arguments` are for World.
    """
    try:
        world = World.from_environment(arguments=arguments)
        ranks = Ranks(
            world=world,
            strategy=make_strategy(strategy, world),
            run_dir=RunDir.from_environment(),
            notice=Notice(),
        )
        torch.set_num_threads(world.num_threads)
        ranks.notice.watch(scheduled_events=events_url(options.scheduled_events, world))
        try:
            train(ranks)
        finally:
            ranks.strategy.shutdown()
    except TrainingError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1
    except Preempted as leaving:
        print(f"preempted: {leaving}", file=sys.stderr, flush=True)
        return EXIT_CODE
    return 0
