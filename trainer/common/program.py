"""Runs a training program as one of the ranks: join, train, leave, exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from trainer.common.errors import TrainingError
from trainer.common.memory import keep_freed_memory
from trainer.common.preemption import EXIT_CODE, Notice, Preempted, events_url
from trainer.common.rundir import RunDir
from trainer.common.training_options import TrainingOptions
from trainer.common.world import RankArguments, World


class CanLeave(Protocol):
    """The end of a framework's strategy."""

    def shutdown(self) -> None:
        """Leave the group, waiting for nobody; silent where it was never met."""
        ...


S = TypeVar("S", bound=CanLeave)


@dataclass(frozen=True, kw_only=True)
class RanksOf(Generic[S]):
    """One rank among the others, and the folders of its run."""

    world: World
    strategy: S
    run_dir: RunDir
    notice: Notice


def run_ranks(
    options: TrainingOptions,
    make_strategy: Callable[[World], S],
    train: Callable[[RanksOf[S]], None],
    arguments: RankArguments | None = None,
) -> int:
    """Train as one of the ranks; gives the exit code.

    1 with a message on stderr for what the user can mend, 75 once a checkpoint is written after
    a notice to leave. `train` meets the other ranks by the strategy. `arguments` are for World.
    """
    keep_freed_memory(os.environ)
    try:
        world = World.from_environment(arguments=arguments)
        ranks = RanksOf(
            world=world,
            strategy=make_strategy(world),
            run_dir=RunDir.from_environment(output_dir=options.output_dir),
            notice=Notice(),
        )
        ranks.run_dir.require_outputs()
        ranks.notice.watch(scheduled_events=events_url(options.scheduled_events, world))
        try:
            train(ranks)
        finally:
            ranks.strategy.shutdown()
    except TrainingError as error:
        return _end(1, f"error: {error}")
    except Preempted as leaving:
        return _end(EXIT_CODE, f"preempted: {leaving}")
    return 0


def _end(code: int, last_words: str) -> int:
    sys.stderr.write(f"{last_words}\n")
    sys.stderr.flush()
    return code
