"""Splits a data set over ranks: equal seeds give equal global batches at any world size."""

from __future__ import annotations

import random
from collections.abc import Iterator

from trainer.common.world import World


def shuffled_batches(
    num_samples: int, batch_size: int, *, seed: int, epoch: int
) -> Iterator[list[int]]:
    """Yield the epoch's global batches: each sample once, the last batch may be smaller.

    The order depends on the seed and the epoch only, never on the rank: a rank takes its part
    of a batch with `shard`.
    """
    order = list(range(num_samples))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    for start in range(0, num_samples, batch_size):
        yield order[start : start + batch_size]


def shard(samples: list[int], world: World) -> list[int]:
    """Give this rank's part; over all ranks each sample falls to exactly one of them."""
    return samples[world.rank :: world.size]
