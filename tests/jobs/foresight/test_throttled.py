"""The goals of foresight on links of our own: ranks behind token buckets (tests/bench/throttled.py)."""

from tests.bench.throttled import (
    BATCHES,
    MBIT_PER_S,
    MOST_RANKS,
    NETWORKS,
    cases,
    held,
    mean_error,
    near,
)


def test_rates_behind_token_buckets_are_predicted_from_one_rank_and_a_probe():
    found = cases()
    assert len(found) == len(NETWORKS) * len(BATCHES) * len(MBIT_PER_S) * (MOST_RANKS - 1)
    assert mean_error(found) <= 0.07
    assert near(found) >= 0.9
    assert held(found) >= 0.85
