"""All ranks conclude alike from the same sums."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from trainer.common.agreement import REPORT, Diverged, accuracy_of, are_failing, are_leaving, judge
from trainer.common.errors import TrainingError
from trainer.common.position import TakenStep

TAKEN = TakenStep(step=120, epoch=3, batch=20, samples=range(100, 104))
HINT = "a smaller --lr"


def total(*reports: Sequence[float]) -> list[float]:
    """Add the ranks' reports up, as an allreduce does."""
    assert all(len(each) == len(REPORT) for each in reports)
    return [sum(column) for column in zip(*reports, strict=True)]


def good(loss_sum: float, num_samples: int) -> tuple[float, ...]:
    return (loss_sum, num_samples, 0, 0, 0, 0, 0)


def bad(rank: int) -> tuple[float, ...]:
    return (0, 4, 1, rank + 1, 0, 0, 0)


LEAVING = (2.0, 4, 0, 0, 1, 0, 0)
FAILING = (2.0, 4, 0, 0, 0, 1, 0)
FAILED = (2.0, 4, 0, 0, 0, 0, 1)


def test_loss_is_the_mean_over_all_samples():
    sums = total(good(3.0, 2), good(9.0, 1), good(0.0, 0))
    assert judge(sums, TAKEN, rank=0, hint=HINT) == 4.0
    assert accuracy_of(sums) is None


def test_accuracy_is_of_all_samples_and_changes_nothing_else():
    sums = [*total(good(3.0, 2), good(9.0, 2)), 1.0 + 2.0]
    assert judge(sums, TAKEN, rank=0, hint=HINT) == 3.0
    assert accuracy_of(sums) == 0.75


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_the_one_bad_rank_is_named_and_names_its_samples(rank):
    with pytest.raises(Diverged) as stopped:
        judge(total(good(1, 4), bad(1), good(1, 4)), TAKEN, rank=rank, hint=HINT)
    own = "; samples of rank 1: 100, 101, 102, 103" if rank == 1 else ""
    assert str(stopped.value) == (
        "training has diverged: the loss of rank 1 is not finite at step 120 "
        f"(epoch 3, batch 20){own} (hint: a smaller --lr)"
    )


def test_several_bad_ranks_are_counted():
    taken = TakenStep(step=1, epoch=1, batch=1, samples=range(20))
    with pytest.raises(Diverged, match="the loss of 2 ranks is not finite") as stopped:
        judge(total(bad(0), bad(2)), taken, rank=1, hint=HINT)
    assert "samples of rank 1: 0, 1, 2" in str(stopped.value)
    assert "14, 15 and 4 more (hint" in str(stopped.value)


def test_divergence_comes_before_a_failed_save():
    with pytest.raises(Diverged):
        judge(total(bad(0), LEAVING, FAILED), TAKEN, rank=0, hint=HINT)
    with pytest.raises(TrainingError, match="could not write a checkpoint by step 120"):
        judge(total(good(1, 4), LEAVING, FAILED), TAKEN, rank=0, hint=HINT)


@pytest.mark.parametrize("num_leaving", [1, 2])
def test_one_rank_that_was_asked_to_leave_ends_all_and_the_step_counts(num_leaving):
    sums = total(good(1, 4), *[LEAVING] * num_leaving)
    assert are_leaving(sums)
    assert judge(sums, TAKEN, rank=0, hint=HINT) == pytest.approx(
        (1 + 2 * num_leaving) / (4 + 4 * num_leaving)
    )
    assert not are_leaving(total(good(1, 4), FAILED))
    assert not are_failing(sums)


def test_one_rank_that_cannot_go_on_ends_all_and_is_told_from_one_that_was_asked_to():
    sums = total(good(1, 4), FAILING)
    assert are_leaving(sums)
    assert are_failing(sums)
    assert judge(sums, TAKEN, rank=0, hint=HINT) == 3 / 8


def test_a_bad_loss_that_was_given_as_nought_does_not_spoil_the_sum():
    assert math.isfinite(sum(bad(3)))
