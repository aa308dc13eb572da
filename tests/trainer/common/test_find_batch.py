"""The largest batch is found by few tries; where there is none, or no GPU, that is said."""

from __future__ import annotations

import pytest

from trainer.common.errors import TrainingError
from trainer.common.find_batch import found_batch, largest_batch, largest_that_fits, require_one_gpu


@pytest.mark.parametrize(
    ("limit", "found"), [(1, None), (2, 2), (3, 3), (37, 37), (64, 64), (99, 99), (1000, 100)]
)
def test_the_largest_that_fits_is_found_whatever_it_is(limit: int, found: int | None) -> None:
    assert largest_that_fits(lambda number: number <= limit, least=2, most=100) == found


def test_it_doubles_and_then_halves_what_lies_between() -> None:
    tried: list[int] = []

    def fits(number: int) -> bool:
        tried.append(number)
        return number <= 37

    assert largest_that_fits(fits, least=2, most=100) == 37
    assert tried == [2, 4, 8, 16, 32, 64, 48, 40, 36, 38, 37]


def test_memory_that_holds_not_even_the_least_is_an_error() -> None:
    assert largest_batch(lambda number: number <= 2, least=2, hint="less") == 2
    for least, number in ((1, "1 sample"), (2, "2 samples")):
        with pytest.raises(TrainingError) as raised:
            largest_batch(lambda number, least=least: number < least, least=least, hint="less")
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

    assert largest_that_fits(fits, least=1, most=100) == found
    assert tried == expected


@pytest.mark.parametrize(
    ("limit", "told", "is_bound"), [(16383, "16383", False), (1 << 20, "at least 16384", True)]
)
def test_where_all_fit_the_search_says_that_it_ended_before_the_memory(
    limit: int, told: str, is_bound: bool
) -> None:
    found = largest_batch(lambda number: number <= limit, least=2, hint="less")
    assert found_batch(found, "batch_size", program="p") == (
        f"the largest --batch-size that fits is {told}",
        {"program": "p", "largest_batch": found, "is_bound_of_search": is_bound},
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
