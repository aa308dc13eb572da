"""Leaves a group of mirrored workers, rank 0 after the others have begun to; prints when each began to leave and had left."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from trainer.common.world import World
from trainer.tf.strategy import make_strategy

LEAVING = Path("leaving")


def main(_argv: Sequence[str]) -> int:
    """Meet and leave."""
    world = World.from_environment()
    strategy = make_strategy("mwms", world)
    strategy.init(world, "cpu")
    strategy.barrier()
    while world.is_main and not LEAVING.exists():
        time.sleep(0.01)
    began = time.monotonic()
    LEAVING.touch()
    strategy.shutdown()
    print("times", began, time.monotonic(), flush=True)
    return 0
