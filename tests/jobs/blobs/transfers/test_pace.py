"""How many requests go at once, how long is waited, how fast bytes go."""

from __future__ import annotations

import pytest

from jobs.blobs.transfers import pace
from jobs.blobs.transfers.pace import FEWEST, MOST, START, Bandwidth, Pace, wait_s


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(pace, "time", made)
    return made


def spend(watched: Pace, clock: Clock, rate, *, seconds: float, idle: float = 0.9) -> list[int]:
    """Let time pass at a rate that the limit gives; which limits were there."""
    limits: list[int] = []
    for _ in range(int(seconds / 0.25)):
        clock.now += 0.25
        watched.did(int(rate(watched.limit) * 0.25))
        watched.idled(idle * 0.25)
        watched.review(clock.now, is_full=True)
        if not limits or limits[-1] != watched.limit:
            limits.append(watched.limit)
    return limits


def test_it_grows_while_throughput_grows(clock):
    limits = spend(Pace(), clock, lambda limit: 1e6 * limit, seconds=5)
    assert limits == [64, 128, MOST]


def test_it_goes_back_where_more_brings_nothing_and_tries_less_and_less_often(clock):
    watched = Pace()
    limits = spend(watched, clock, lambda _limit: 1e7, seconds=100)
    assert limits == [64, START] * 5
    assert watched.limit == START


def test_it_stays_where_the_cpu_is_the_limit(clock):
    assert spend(Pace(), clock, lambda limit: 1e6 * limit, seconds=5, idle=0.1) == [START]


def test_it_halves_once_a_second_where_the_store_asks_for_less_and_rests(clock):
    watched = Pace()
    for _ in range(10):
        watched.throttled()
    assert watched.limit == START // 2
    for _ in range(10):
        clock.now += 1
        watched.throttled()
    assert watched.limit == FEWEST
    assert spend(watched, clock, lambda limit: 1e6 * limit, seconds=5) == [FEWEST]
    assert spend(watched, clock, lambda limit: 1e6 * limit, seconds=100)[-1] == MOST


def test_waits_grow_are_never_in_step_and_heed_the_store():
    for num, most in [(1, 0.5), (2, 1.0), (3, 2.0), (9, 15.0), (100, 15.0)]:
        waits = {wait_s(num, None) for _ in range(50)}
        assert len(waits) > 40
        assert most / 2 <= min(waits) <= max(waits) <= most
    assert wait_s(1, 7.0) == 7.0
    assert wait_s(9, 1.0) >= 7.5


def test_bandwidth_spreads_bytes_over_time(clock):
    limited = Bandwidth(1000)
    assert [limited.take(500) for _ in range(4)] == [0.0, 0.5, 1.0, 1.5]
    clock.now += 10
    # What was not used before is lost: no burst follows a pause.
    assert [limited.take(1000), limited.take(1000)] == [0.0, 1.0]
