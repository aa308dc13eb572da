"""Bandwidths as nccl-tests has them, floors by VM size, pairs and slow nodes."""

from __future__ import annotations

import itertools

import pytest

from trainer.common.bandwidth import (
    FLOORS,
    Floor,
    best_of_pairs,
    bus_bandwidth,
    find_floor,
    message_sizes,
    pair_rounds,
    size_text,
    slow_units,
    time_text,
)


def test_bus_bandwidth_is_that_of_nccl_tests() -> None:
    """4 GiB in 32.5 ms over 8 ranks: 132 GB/s of the algorithm, times 2 * 7 / 8 on the bus."""
    assert bus_bandwidth(4 << 30, 0.0325, 8) == pytest.approx(231.27, abs=0.01)
    # Two ranks: each link carries as much as there is to add up.
    assert bus_bandwidth(10**9, 1.0, 2) == pytest.approx(1.0)


def test_floors_are_found_by_any_spelling_of_a_size() -> None:
    assert find_floor("Standard_ND96isr_H100_v5") == Floor(gb_per_s=460, num_bytes=16 << 30)
    assert find_floor("STANDARD_ND96ASR_V4") == Floor(gb_per_s=228, num_bytes=8 << 30)
    assert [find_floor(each) for each in (None, "", "Standard_NC4as_T4_v3")] == [None] * 3
    assert all(name == name.lower() for name in FLOORS)


@pytest.mark.parametrize("num_units", range(2, 34))
def test_pairs_of_a_round_share_no_unit_and_no_pair_comes_twice(num_units: int) -> None:
    rounds = pair_rounds(num_units)
    assert rounds
    for pairs in rounds:
        units = list(itertools.chain(*pairs))
        assert len(set(units)) == len(units) == 2 * (num_units // 2)
    all_pairs = [frozenset(pair) for pairs in rounds for pair in pairs]
    assert len(set(all_pairs)) == len(all_pairs)
    met = [sum(unit in pair for pair in all_pairs) for unit in range(num_units)]
    assert min(met) == min(3, num_units - 1)


def test_no_unit_has_no_pairs_alone() -> None:
    assert pair_rounds(1) == []


def test_slow_node_is_named_and_those_it_was_paired_with_are_not() -> None:
    for num_units, slow in itertools.product((3, 4, 5, 16), (0, 1, 2)):
        measured = [
            (a, b, 10.0 if slow in (a, b) else 40.0 + a)
            for pairs in pair_rounds(num_units)
            for a, b in pairs
        ]
        assert slow_units(best_of_pairs(measured, num_units)) == [slow], (num_units, slow)


def test_two_slow_nodes_are_named_the_slower_one_first() -> None:
    assert slow_units([50.0, 12.0, 49.0, 30.0, 51.0]) == [1, 3]


def test_of_two_nodes_none_is_called_slow() -> None:
    assert slow_units(best_of_pairs([(0, 1, 3.0)], 2)) == []
    assert slow_units([50.0, 12.0]) == []


def test_sizes_grow_by_four_up_to_the_largest() -> None:
    assert message_sizes(512) == [8, 32, 128, 512]
    assert message_sizes(1000) == [8, 32, 128, 512, 1000]
    assert [size_text(each) for each in (8, 2048, 3 << 20, 16 << 30)] == [
        "8 B",
        "2 KiB",
        "3 MiB",
        "16 GiB",
    ]
    assert [time_text(each) for each in (32.1e-6, 0.0042, 2.5)] == ["32.1 us", "4.20 ms", "2.50 s"]
