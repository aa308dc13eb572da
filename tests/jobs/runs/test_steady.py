"""The steady part of a run: warm-up, pauses, windows, and the interval of their median."""

from __future__ import annotations

import pytest

from jobs.runs.pace import Place
from jobs.runs.steady import LEAST_WINDOWS, MOST_WINDOWS, steady
from tests.seeds import dice


def places(rates, *, gap_s=2.0, begin_s=100.0):
    """Places `gap_s` apart, between which a run goes at these rates."""
    found = [Place(time_s=begin_s, done=None), Place(time_s=begin_s + 1, done=0.0)]
    for rate in rates:
        last = found[-1]
        found.append(Place(time_s=last.time_s + gap_s, done=(last.done or 0.0) + rate * gap_s))
    return found


def test_an_even_run_has_its_rate_and_no_warm_up():
    found = steady(places([50.0] * 10))
    assert found is not None
    assert (found.rate, found.low, found.high) == (50.0, 50.0, 50.0)
    assert (found.num_windows, found.seconds, found.warm_up_s) == (10, 20.0, 0.0)
    assert found.variation == 0.0


def test_a_slow_beginning_is_left_out_whatever_its_length():
    rng = dice(4)
    for slow in range(1, 7):
        beginning = [30.0 + 3 * at for at in range(slow)]
        rest = [rng.gauss(60.0, 0.6) for _ in range(20)]
        found = steady(places([*beginning, *rest]))
        assert found is not None
        assert found.rate == pytest.approx(60.0, rel=0.01), slow
        assert 2.0 * (slow - 1) <= found.warm_up_s <= 2.0 * (slow + 4), slow


def test_of_a_run_that_only_grows_faster_at_most_half_is_called_a_warm_up():
    found = steady(places([10.0 + at for at in range(20)]))
    assert found is not None
    assert found.warm_up_s <= 20.0


def test_pauses_are_left_out():
    found = steady(places([50.0, 50.0, 50.0, 5.0, 50.0, 50.0, 8.0, 50.0, 50.0]))
    assert found is not None
    assert (found.rate, found.num_windows, found.seconds) == (50.0, 7, 14.0)


def test_fewer_than_five_windows_are_no_measure():
    assert steady(places([50.0] * (LEAST_WINDOWS - 1))) is None
    assert steady(places([50.0] * LEAST_WINDOWS)) is not None
    assert steady([]) is None


def test_only_the_newest_attempt_counts():
    found = steady([*places([10.0] * 9), *places([50.0] * 6, begin_s=300.0)])
    assert found is not None
    assert (found.rate, found.num_windows) == (50.0, 6)


def test_an_attempt_that_nobody_announced_begins_where_less_is_done():
    again = places([50.0] * 6, begin_s=300.0)[1:]
    found = steady([*places([10.0] * 9), *again])
    assert found is not None
    assert (found.rate, found.num_windows) == (50.0, 6)


def test_many_places_are_joined_to_at_most_twenty_windows():
    rng = dice(7)
    found = steady(places([rng.gauss(50.0, 1.0) for _ in range(207)]))
    assert found is not None
    assert 10 <= found.num_windows <= MOST_WINDOWS
    assert found.seconds <= 207 * 2.0


def test_the_interval_holds_the_middle_of_what_is_measured_in_nineteen_of_twenty_cases():
    rng = dice(11)
    held = 0
    for _ in range(400):
        found = steady(places([rng.gauss(50.0, 2.0) for _ in range(12)]))
        assert found is not None
        held += found.low <= 50.0 <= found.high
    assert 0.90 <= held / 400 <= 0.99


def test_the_variation_is_that_of_the_windows():
    found = steady(places([45.0, 55.0] * 5))
    assert found is not None
    assert found.variation == pytest.approx(0.105, abs=0.01)
