"""Orders of epochs: begun on a thread before they are asked for, and the same as without."""

from __future__ import annotations

import random
import threading

import pytest

from trainer.common import epoch_order as orders
from trainer.common.epoch_order import begin_order, epoch_order
from trainer.common.sharding import shuffled_batches
from trainer.data.pictures.coco_batches import grouped_batches


def by_hand(num_samples: int, seed: int, epoch: int) -> list[int]:
    order = list(range(num_samples))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return order


@pytest.fixture
def threads(monkeypatch) -> list[str]:
    """Names of the threads that shuffle, in turn."""
    names: list[str] = []
    shuffle = orders.shuffled

    def noted(*key: int) -> list[int]:
        names.append(threading.current_thread().name)
        return shuffle(*key)

    monkeypatch.setattr(orders, "shuffled", noted)
    monkeypatch.setattr(orders, "LEAST_AHEAD", 100)
    orders._begun.clear()
    return names


def test_an_order_that_was_begun_is_the_one_that_was_not(threads):
    begin_order(200, seed=3, epoch=2)
    begin_order(200, seed=3, epoch=2)
    assert epoch_order(200, seed=3, epoch=2) == by_hand(200, 3, 2)
    assert threads == ["epoch-order"]
    assert epoch_order(200, seed=3, epoch=2) == by_hand(200, 3, 2)
    assert threads == ["epoch-order", "MainThread"]


def test_few_samples_are_not_worth_a_thread_and_one_order_is_kept(threads):
    begin_order(99, seed=3, epoch=2)
    assert threads == []
    for epoch in (2, 3):
        begin_order(200, seed=3, epoch=epoch)
    assert list(orders._begun) == [(200, 3, 3)]


@pytest.mark.parametrize("kind", ["classes", "coco"])
def test_an_epoch_begins_the_next_ones_order_before_its_end(threads, kind):
    def batches(epoch: int) -> list[list[int]]:
        if kind == "classes":
            return list(shuffled_batches(400, 10, seed=1, epoch=epoch))
        return list(grouped_batches([True] * 400, 10, seed=1, epoch=epoch))

    seen = [batches(1), batches(2)]
    # The first is made where it is asked for, and the third is under way.
    assert threads[:2] == ["MainThread", "epoch-order"]
    assert "MainThread" not in threads[1:]
    for epoch, found in enumerate(seen, 1):
        assert [sample for batch in found for sample in batch] == by_hand(400, 1, epoch)
    early = shuffled_batches(400, 10, seed=9, epoch=1)
    for _ in range(30):
        next(early)
    assert (400, 9, 2) not in orders._begun
    next(early)
    assert (400, 9, 2) in orders._begun
