"""Meets the other ranks as one that computes on a kind of device, which need not be there: STRATEGY KIND."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest import mock

import horovod.tensorflow

from trainer.common.errors import TrainingError
from trainer.common.world import World
from trainer.tf.strategy import make_strategy


def main(argv: Sequence[str]) -> int:
    """Meet, and print what is said; 1 where the ranks do not fit together."""
    name, kind = argv
    given: Any = (name, kind)
    world = World.from_environment()
    strategy = make_strategy(given[0], world)
    try:
        # As a Horovod for GPUs, of which there are none here.
        with mock.patch.object(horovod.tensorflow, "nccl_built", return_value=True):
            strategy.init(world, given[1])
    except TrainingError as error:
        print(error, flush=True)
        return 1
    finally:
        strategy.shutdown()
    return 0
