"""Sharding: each sample once an epoch, in global batches that no world size changes."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from trainer.common.errors import TrainingError
from trainer.common.sharding import (
    WINDOW_SHARDS,
    batches_in_order,
    rank_batches,
    require_full_batch,
    shard,
    shuffled_batches,
)
from trainer.common.world import World


def worlds(size):
    return [World(rank=rank, size=size) for rank in range(size)]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_an_epoch_gives_each_sample_to_one_rank_once(size):
    batches = list(shuffled_batches(103, 16, seed=1, epoch=1))
    seen = [sample for batch in batches for world in worlds(size) for sample in shard(batch, world)]
    assert sorted(seen) == list(range(103))
    assert [len(batch) for batch in batches] == [16] * 6 + [7]


def test_batches_in_order_are_ranges_that_cost_the_same_in_sets_of_any_size():
    assert list(batches_in_order(10, 4)) == [range(4), range(4, 8), range(8, 10)]
    assert list(batches_in_order(0, 4)) == []
    assert next(batches_in_order(10**15, 4)) == range(4)


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_together_see_the_batch_that_one_rank_sees(size):
    batches = list(shuffled_batches(103, 16, seed=1, epoch=1))
    assert len(batches) == 7
    for batch in batches:
        parts = [shard(batch, world) for world in worlds(size)]
        assert sorted(sample for part in parts for sample in part) == sorted(batch)
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("first", [0, 2])
def test_repeated_samples_share_a_batch_as_copies_on_ranks_in_turn(first):
    unique = list(shuffled_batches(103, 8, seed=1, epoch=1))[first:6]
    parts = [
        list(rank_batches(103, 16, world, seed=1, epoch=1, first=first, repeats=2))
        for world in worlds(2)
    ]
    assert parts == [unique, [[each + 103 for each in batch] for batch in unique]]


@given(
    size=st.integers(2, 9),
    num_parts=st.integers(1, 3),
    num_ranks=st.integers(1, 6),
    repeats=st.integers(2, 12),
)
def test_a_picture_lies_beside_another_and_not_beside_its_copy(size, num_parts, num_ranks, repeats):
    """In each part of a rank's step, whose last one is beside its first: mixup takes neighbors."""
    batch_size = size * num_parts * num_ranks
    assume(batch_size % repeats == 0 and batch_size > repeats)
    ranks = [
        next(rank_batches(200, batch_size, world, seed=1, epoch=1, repeats=repeats))
        for world in worlds(num_ranks)
    ]
    alone = next(rank_batches(200, batch_size, World(), seed=1, epoch=1, repeats=repeats))
    assert sorted(itertools.chain(*ranks)) == sorted(alone)
    for mine in ranks:
        assert len(mine) == size * num_parts
        pictures = [each % 200 for each in mine]
        assert all(one != other for one, other in itertools.pairwise(pictures))
        # Else too few pictures may fall to a part: of two no third one is beside others only.
        if repeats % size:
            parts = [pictures[start : start + size] for start in range(0, len(mine), size)]
            assert all(part[0] != part[-1] for part in parts)


@pytest.mark.parametrize("first", [0, 2, 6])
def test_a_rank_trains_on_its_part_of_full_batches_only(first):
    full = list(shuffled_batches(103, 16, seed=1, epoch=1))[first:6]
    assert len(full) == 6 - first
    for world in worlds(3):
        mine = rank_batches(103, 16, world, seed=1, epoch=1, first=first)
        assert list(mine) == [shard(batch, world) for batch in full]


def test_seed_and_epoch_decide_the_order():
    first = list(shuffled_batches(100, 10, seed=1, epoch=1))
    assert first == list(shuffled_batches(100, 10, seed=1, epoch=1))
    assert first != list(shuffled_batches(100, 10, seed=2, epoch=1))
    assert first != list(shuffled_batches(100, 10, seed=1, epoch=2))


def test_the_order_stays_the_same_from_release_to_release():
    assert next(shuffled_batches(10, 5, seed=1, epoch=1)) == [5, 0, 2, 9, 4]


def test_samples_of_shards_come_window_by_window_and_are_mixed_in_it():
    sizes = [10] * (2 * WINDOW_SHARDS + 1)
    batches = shuffled_batches(sum(sizes), 10, seed=1, epoch=1, shard_sizes=sizes)
    shards = [{sample // 10 for sample in batch} for batch in batches]
    windows = [
        set.union(*shards[start : start + WINDOW_SHARDS]) for start in range(0, 17, WINDOW_SHARDS)
    ]
    assert list(map(len, windows)) == [WINDOW_SHARDS, WINDOW_SHARDS, 1]
    assert set.union(*windows) == set(range(17))
    assert all(len(batch) > 2 for batch in shards[:-1])
    # Not the neighbours: classes that were packed one after the other would stay together.
    assert windows[0] != set(range(WINDOW_SHARDS))


def test_another_epoch_opens_other_windows():
    sizes = [10] * 32
    first, second = (
        list(shuffled_batches(320, 80, seed=1, epoch=epoch, shard_sizes=sizes)) for epoch in (1, 2)
    )
    assert {sample // 10 for sample in first[0]} != {sample // 10 for sample in second[0]}


def test_the_order_of_shards_stays_the_same_from_release_to_release():
    assert next(shuffled_batches(12, 6, seed=1, epoch=1, shard_sizes=[4] * 3)) == [
        7,
        9,
        2,
        10,
        3,
        11,
    ]


@given(
    sizes=st.lists(st.integers(0, 40), max_size=40),
    loose=st.integers(0, 200),
    per_rank=st.integers(1, 9),
    world_size=st.integers(1, 7),
    first=st.integers(0, 40),
    epoch=st.integers(1, 3),
)
def test_every_sample_falls_to_one_rank_once_wherever_training_goes_on(
    sizes, loose, per_rank, world_size, first, epoch
):
    num_samples = sum(sizes) or loose
    kwargs = {"seed": 7, "epoch": epoch, "shard_sizes": sizes if sum(sizes) else ()}
    batch_size = per_rank * world_size
    batches = list(shuffled_batches(num_samples, batch_size, **kwargs))
    parts = [shard(batch, world) for batch in batches for world in worlds(world_size)]
    assert sorted(itertools.chain(*parts)) == list(range(num_samples))
    assert [len(batch) for batch in batches[:-1]] == [batch_size] * (len(batches) - 1)
    # Resumed at a batch, and with another number of ranks: the same samples in the same order.
    left = shuffled_batches(num_samples, batch_size, **kwargs, first=first)
    assert list(left) == batches[first:]
    others = shuffled_batches(num_samples, 5, **kwargs)
    assert list(itertools.chain(*others)) == list(itertools.chain(*batches))


@pytest.mark.parametrize(
    ("num_train", "accumulate", "message"),
    [
        (7, 1, "--batch-per-rank 4 on 2 ranks is a batch of 8, more than the 7 training pictures"),
        (1, 1, "--batch-per-rank 4 on 2 ranks is a batch of 8, more than the 1 training pictures"),
        (2, 1, "--batch-per-rank 4 on 2 ranks is a batch of 8, more than the 2 training pictures"),
        (
            19,
            3,
            "--batch-per-rank 4 --accumulate 3 on 2 ranks is a batch of 24, more than the 19 tr",
        ),
        (
            5,
            3,
            "--batch-per-rank 4 --accumulate 3 on 2 ranks is a batch of 24, more than the 5 tra",
        ),
        (
            3,
            3,
            "--batch-per-rank 4 --accumulate 3 on 2 ranks is a batch of 24, more than the 3 tra",
        ),
    ],
)
def test_a_set_that_fills_no_batch_of_all_ranks_is_refused(num_train, accumulate, message):
    """With what would fill one: batches of 3 of 7 pictures, and three parts of 3 of 19.

    No program takes batches of one.
    """
    ranks = {"world_size": 2, "accumulate": accumulate}
    require_full_batch(8 * accumulate, batch_per_rank=4, **ranks)
    with pytest.raises(TrainingError, match=re.escape(message)) as refused:
        require_full_batch(num_train, batch_per_rank=4, **ranks)
    hints = {
        7: "--batch-per-rank 3 or less",
        1: "more pictures, or fewer ranks",
        2: "more pictures, or fewer ranks",
        19: "--batch-per-rank 3 or less",
        5: "a smaller --accumulate",
        3: "more pictures, or fewer ranks",
    }
    assert refused.value.hint == hints[num_train]
    if num_train in (7, 19):
        require_full_batch(num_train, batch_per_rank=3, **ranks)
