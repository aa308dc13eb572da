"""Splits a data set over ranks: equal seeds give equal global batches at any world size."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import islice

from trainer.common.epoch_order import BEGIN_AT, begin_order, epoch_order
from trainer.common.errors import TrainingError
from trainer.common.world import World

# Shards whose samples are mixed with each other: as many stay at hand where they come from afar.
WINDOW_SHARDS = 8
# Of one picture there are no batch statistics.
LEAST_BATCH = 2


def shuffled_batches(
    num_samples: int,
    batch_size: int,
    *,
    seed: int,
    epoch: int,
    shard_sizes: Sequence[int] = (),
    first: int = 0,
) -> Iterator[list[int]]:
    """Yield the epoch's global batches from number `first` on; each sample once an epoch.

    The last batch may be smaller. Samples of shards, whose sizes are given in the order of their
    samples, come window by window: the shards in a random order, and all samples of WINDOW_SHARDS
    of them mixed. The order depends on the seed and the epoch only, never on the rank: a rank
    takes its part of a batch with `shard`.
    """
    left: list[int] = []
    num_skipped = first * batch_size
    for number, window in enumerate(_windows(num_samples, shard_sizes, seed=seed, epoch=epoch)):
        size = sum(map(len, window))
        if size <= num_skipped:
            num_skipped -= size
            continue
        if shard_sizes:
            samples = [sample for run in window for sample in run]
            random.Random(f"{seed}/{epoch}/{number}").shuffle(samples)
        else:  # the order is what it was before there were any
            samples = epoch_order(num_samples, seed=seed, epoch=epoch)
        left += samples[num_skipped:]
        num_skipped = 0
        num_full = len(left) // batch_size * batch_size
        for start in range(0, num_full, batch_size):
            if not shard_sizes and start >= BEGIN_AT * num_full:
                begin_order(num_samples, seed=seed, epoch=epoch + 1)
            yield left[start : start + batch_size]
        left = left[num_full:]
    if left:
        yield left


def batches_in_order(num_samples: int, batch_size: int) -> Iterator[range]:
    """Yield all samples in their order, so many at a time; the last batch may be smaller."""
    for start in range(0, num_samples, batch_size):
        yield range(start, min(start + batch_size, num_samples))


def shard(samples: list[int], world: World) -> list[int]:
    """Give this rank's part; over all ranks each sample falls to exactly one of them."""
    return samples[world.rank :: world.size]


def rank_batches(
    num_samples: int,
    batch_size: int,
    world: World,
    *,
    seed: int,
    epoch: int,
    shard_sizes: Sequence[int] = (),
    first: int = 0,
    repeats: int = 1,
) -> Iterator[list[int]]:
    """Yield this rank's part of each full batch of `shuffled_batches`; a smaller last one is none.

    With `repeats`, which divide the batch, each sample is in its batch so often, copy c of sample
    s as `s + c * num_samples`, and an epoch has as many batches as without and fewer samples. A rank
    then takes neighbors of a row in which all samples stand once before any stands again, so that
    a sample's neighbors, with which mixup and CutMix mix it, are others.
    Source: Hoffer et al. 2019, arXiv 1901.09335; Berman et al. 2019, arXiv 1902.05509.
    """
    num_unique = batch_size // repeats
    batches = shuffled_batches(
        num_samples, num_unique, seed=seed, epoch=epoch, shard_sizes=shard_sizes, first=first
    )
    full = (batch for batch in batches if len(batch) == num_unique)
    for batch in islice(full, max(0, num_samples // batch_size - first)):
        if repeats == 1:
            yield shard(batch, world)
            continue
        row = [s + copy * num_samples for copy in range(repeats) for s in batch]
        begin, end = (len(row) * rank // world.size for rank in (world.rank, world.rank + 1))
        yield row[begin:end]


def require_full_batch(
    num_train: int, *, batch_per_rank: int, world_size: int, accumulate: int = 1
) -> None:
    """Raises TrainingError where a training set is smaller than the batches that make a step of all ranks."""
    wanted = batch_per_rank * accumulate * world_size
    if num_train < wanted:
        times = f" --accumulate {accumulate}" if accumulate > 1 else ""
        message = (
            f"--batch-per-rank {batch_per_rank}{times} on {world_size} ranks is a batch of {wanted}, "
            f"more than the {num_train} training pictures"
        )
        most = num_train // (world_size * accumulate)
        hint = "more pictures, or fewer ranks"
        if most >= LEAST_BATCH:
            hint = f"--batch-per-rank {most} or less"
        elif num_train // world_size >= LEAST_BATCH:
            hint = "a smaller --accumulate"
        raise TrainingError(message, hint=hint)


def _windows(
    num_samples: int, shard_sizes: Sequence[int], *, seed: int, epoch: int
) -> Iterator[Sequence[range]]:
    """Yield the runs of samples that are mixed with each other, all of them or those of shards."""
    if not shard_sizes:
        yield [range(num_samples)]
        return
    runs: list[range] = []
    begin = 0
    for size in shard_sizes:
        runs.append(range(begin, begin + size))
        begin += size
    assert begin == num_samples, (begin, num_samples)
    random.Random(f"{seed}/{epoch}").shuffle(runs)
    for start in range(0, len(runs), WINDOW_SHARDS):
        yield runs[start : start + WINDOW_SHARDS]
