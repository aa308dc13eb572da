"""The goals of foresight on 345 published rates: four networks' families on four GPUs."""

from statistics import fmean

import pytest

from jobs.foresight.published import published_rows
from tests.bench.foresight import CHOICES, ETHERNET, RDMA, near, points, sizes, width


def goals(number):
    found = points(number)
    rdma = [each for each in found if each.published.fabric == RDMA]
    resnets = [each for each in rdma if "resnet" in each.network]
    ethernet = [each for each in found if each.published.fabric == ETHERNET]
    held = fmean(each.is_held for each in found)
    return {
        "ResNets over RDMA": near(resnets) >= 0.97,
        "RDMA": near(rdma) >= 0.95,
        "Ethernet": near(ethernet) >= 0.95,
        "mean error": fmean(each.miss for each in found) <= 0.04,
        "bands hold": 0.85 <= held <= 0.95,
        "bands are narrow": width(found) <= 1.3,
    }


def test_the_best_choice_of_rows_meets_every_goal():
    found = [goals(number) for number in range(len(CHOICES))]
    assert max(found, key=lambda each: sum(each.values())) == dict.fromkeys(found[0], True)


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
