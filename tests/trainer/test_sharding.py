"""Sharding: each sample once an epoch, in global batches that no world size changes."""

from __future__ import annotations

import pytest

from trainer.common.sharding import shard, shuffled_batches
from trainer.common.world import World


def worlds(size):
    return [World(rank=rank, size=size) for rank in range(size)]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_an_epoch_gives_each_sample_to_one_rank_once(size):
    batches = list(shuffled_batches(103, 16, seed=1, epoch=1))
    seen = [sample for batch in batches for world in worlds(size) for sample in shard(batch, world)]
    assert sorted(seen) == list(range(103))
    assert [len(batch) for batch in batches] == [16] * 6 + [7]


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_together_see_the_batch_that_one_rank_sees(size):
    for batch in shuffled_batches(103, 16, seed=1, epoch=1):
        parts = [shard(batch, world) for world in worlds(size)]
        assert sorted(sample for part in parts for sample in part) == sorted(batch)
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_seed_and_epoch_decide_the_order():
    first = list(shuffled_batches(100, 10, seed=1, epoch=1))
    assert first == list(shuffled_batches(100, 10, seed=1, epoch=1))
    assert first != list(shuffled_batches(100, 10, seed=2, epoch=1))
    assert first != list(shuffled_batches(100, 10, seed=1, epoch=2))


def test_the_order_stays_the_same_from_release_to_release():
    assert next(shuffled_batches(10, 5, seed=1, epoch=1)) == [5, 0, 2, 9, 4]
