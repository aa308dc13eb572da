"""Meets the other ranks as one that computes on a kind of device, which need not be there: STRATEGY KIND."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import horovod.tensorflow

from trainer.common.errors import TrainingError
from trainer.common.world import World
from trainer.tf.strategy import make_strategy

# Rank 0 says by this file that it has met the others.
MET = Path("met")


def main(argv: Sequence[str]) -> int:
    """Meet, and print what is said; 1 where the ranks do not fit together.

    A rank that has met stays until rank 0 has too: it may hold what rank 0 still waits for.
    """
    name, kind = argv
    given: Any = (name, kind)
    world = World.from_environment()
    strategy = make_strategy(given[0], world)
    try:
        # As a Horovod for GPUs, of which there are none here.
        with mock.patch.object(horovod.tensorflow, "nccl_built", return_value=True):
            strategy.init(world, given[1])
        if world.is_main:
            MET.touch()
        while not MET.exists():
            time.sleep(0.01)
    except TrainingError as error:
        print(error, flush=True)
        return 1
    finally:
        strategy.shutdown()
    return 0
