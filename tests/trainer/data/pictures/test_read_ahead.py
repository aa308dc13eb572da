"""Batches come in their order, begun ahead and announced before that, and errors come through."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass

import pytest

from trainer.data.pictures.read_ahead import NUM_AHEAD, NUM_ANNOUNCED, announced, read_ahead


@dataclass(frozen=True, kw_only=True)
class Begun:
    """A batch under way."""

    samples: list[int]
    parts: list[Future[None]]


def test_batches_are_begun_ahead_and_given_in_order():
    begun: list[Begun] = []

    def begin(samples):
        part: Future[None] = Future()
        part.set_result(None)
        begun.append(Begun(samples=samples, parts=[part]))
        return begun[-1]

    order = [[number] for number in range(10)]
    batches = read_ahead(order, begin, lambda one: one.samples)
    assert next(batches) == [0]
    assert len(begun) == NUM_AHEAD + 1
    assert [[0], *batches] == order


def test_a_parts_error_comes_at_its_batch_and_the_rest_is_cancelled():
    begun: list[Begun] = []

    def begin(samples):
        begun.append(Begun(samples=samples, parts=[Future()]))
        if samples == [1]:
            begun[-1].parts[0].set_exception(ValueError("torn"))
        if samples == [0]:
            begun[-1].parts[0].set_result(None)
        return begun[-1]

    batches = read_ahead([[number] for number in range(10)], begin, lambda one: one.samples)
    assert next(batches) == [0]
    with pytest.raises(ValueError, match="torn"):
        next(batches)
    assert [one.parts[0].cancelled() for one in begun] == [False, False, True, True, True]


@pytest.mark.parametrize("size", [1, 7, NUM_ANNOUNCED, 2 * NUM_ANNOUNCED])
def test_samples_are_announced_that_far_ahead_and_all_of_them_once(size):
    heard: list[int] = []
    order = [list(range(size * number, size * (number + 1))) for number in range(9)]
    given = announced(order, heard.extend)
    for number, batch in enumerate(given):
        assert batch == order[number]
        wanted = min(9 * size, size * (number + 1) + NUM_ANNOUNCED)
        assert len(heard) >= wanted
        assert len(heard) < wanted + size
    assert heard == list(range(9 * size))


def test_a_batch_of_no_sample_is_given_too():
    assert list(announced([[], [1], []], lambda _: None)) == [[], [1], []]
