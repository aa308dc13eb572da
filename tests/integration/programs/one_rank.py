"""The ranks of a PyTorch task that nobody launched: one alone."""

from __future__ import annotations

from trainer.common.preemption import Notice
from trainer.common.rundir import RunDir
from trainer.common.world import World
from trainer.pytorch.strategy import Ranks, make_strategy


def alone(run_dir: RunDir | None = None) -> Ranks:
    """Give one rank, in the working folder where no run directory is given."""
    world = World()
    return Ranks(
        world=world,
        strategy=make_strategy("single", world),
        run_dir=RunDir.from_environment({}) if run_dir is None else run_dir,
        notice=Notice(),
    )
