"""The goals of foresight on 345 published rates: four networks' families on four GPUs."""

from statistics import fmean

import pytest

from jobs.foresight.published import published_rows
from tests.bench.foresight import CHOICES, ETHERNET, RDMA, best_choice, goals, near, points, sizes


def test_the_best_choice_of_rows_meets_every_goal():
    assert [row.goal for row in goals(best_choice()) if not row.met] == []


def test_no_choice_of_rows_is_far_below_the_best():
    for number in range(len(CHOICES)):
        found = points(number)
        for fabric in (RDMA, ETHERNET):
            these = [each for each in found if each.published.fabric == fabric]
            assert near(these) >= 0.88
            assert fmean(each.miss for each in these) <= 0.06


@pytest.mark.parametrize("size", ["Standard_NC24rs_v3", "standard_nc24s_v3"])
def test_the_rows_of_the_package_are_published_ones(size):
    rows = {(each.series, each.gpus, each.gradient_mb, each.rate) for each in published_rows(size)}
    source = {
        (" ".join(each.series.split()[:2]), each.gpus, each.gradient_mb, each.rate)
        for each in sizes()
        if each.fabric == (RDMA if "rs" in size else ETHERNET)
    }
    assert len(rows) in (5, 6)
    assert rows <= source
    assert published_rows("Standard_ND96isr_H100_v5") == []


def test_a_choice_takes_three_rows_of_a_fabric_at_most():
    assert {len(rows) for choice in CHOICES for rows in choice.values()} == {3}
    # 345 less 23 without Horovod, the wrong ones and 46 rows of one GPU.
    assert len([each for each in sizes() if each.gpus > 1]) == 345 - 23 - 3 - 46
