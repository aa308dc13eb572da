"""The largest batch is found by few tries; where there is none, or no GPU, that is said."""

from __future__ import annotations

import pytest

from trainer.common.errors import TrainingError
from trainer.common.find_batch import (
    MOST,
    PARTS,
    found_batch,
    largest_batch,
    largest_that_fits,
    require_one_gpu,
)


@pytest.mark.parametrize(
    ("limit", "found"), [(1, None), (2, 2), (3, 3), (37, 37), (59, 59), (1000, 60)]
)
def test_below_64_the_very_largest_that_fits_is_found(limit: int, found: int | None) -> None:
    largest = largest_that_fits(lambda number: number <= limit, least=2, most=60)
    assert largest == (found and (found, found + 1))


def test_it_doubles_and_then_halves_what_lies_between() -> None:
    tried: list[int] = []

    def fits(number: int) -> bool:
        tried.append(number)
        return number <= 37

    assert largest_that_fits(fits, least=2, most=100) == (37, 38)
    assert tried == [2, 4, 8, 16, 32, 64, 48, 40, 36, 38, 37]


@pytest.mark.parametrize("limit", [65, 1000, 1663, 16000])
def test_of_many_it_ends_within_a_part_of_the_largest(limit: int) -> None:
    tried: list[int] = []

    def fits(number: int) -> bool:
        tried.append(number)
        return number <= limit

    largest = largest_that_fits(fits, least=2)
    assert largest is not None
    assert largest.fitting <= limit < largest.beyond
    assert 1 <= largest.beyond - largest.fitting <= largest.fitting / PARTS
    assert {largest.fitting, largest.beyond} <= {*tried, MOST + 1}
    # Once for each doubling, and then five or six times.
    assert len(tried) <= limit.bit_length() + 6


def test_memory_that_holds_not_even_the_least_is_an_error() -> None:
    said: list[str] = []
    search = {"hint": "less", "say": said.append}
    assert largest_batch(lambda number: number <= 2, least=2, **search) == (2, 3)
    step = "a step of"
    assert said == [f"{step} 2 fits", f"{step} 4 does not fit", f"{step} 3 does not fit"]
    for least, number in ((1, "1 sample"), (2, "2 samples")):
        with pytest.raises(TrainingError) as raised:
            largest_batch(lambda number, least=least: number < least, least=least, **search)
        told = f"the GPU's memory does not hold a step of {number} (hint: less)"
        assert str(raised.value) == told


@pytest.mark.parametrize(
    ("limit", "found", "expected"), [(5, 5, [2, 4, 8, 6, 5]), (1, 1, [2, 1]), (0, None, [2, 1])]
)
def test_one_sample_is_tried_where_two_do_not_fit_alone(
    limit: int, found: int | None, expected: list[int]
) -> None:
    """A batch norm of vectors refuses to learn from one."""
    tried: list[int] = []

    def fits(number: int) -> bool:
        tried.append(number)
        return number <= limit

    assert largest_that_fits(fits, least=1, most=100) == (found and (found, found + 1))
    assert tried == expected


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        (37, "the largest --batch-size that fits is 37"),
        (1663, "--batch-size 1632 fits, and 1664 does not"),
        (1 << 20, "the largest --batch-size that fits is at least 16384"),
    ],
)
def test_the_sentence_says_how_near_it_came_and_whether_the_search_ended_first(
    limit: int, told: str
) -> None:
    found = largest_batch(lambda number: number <= limit, least=2, hint="less", say=print)
    assert found_batch(found, "batch_size", program="p") == (
        told,
        {
            "program": "p",
            "largest_batch": found.fitting,
            "beyond": found.beyond,
            "is_bound_of_search": "at least" in told,
        },
    )


@pytest.mark.parametrize(("device", "world_size"), [("cpu", 1), ("cuda", 2), ("cpu", 2)])
def test_a_search_without_a_gpu_or_on_several_is_refused(device: str, world_size: int) -> None:
    with pytest.raises(TrainingError) as raised:
        require_one_gpu(device, world_size)
    assert str(raised.value) == (
        "--find-batch tries steps on one GPU (hint: one rank, and --device cuda)"
    )


def test_a_search_on_one_gpu_is_none_of_its_errors() -> None:
    require_one_gpu("cuda", 1)
