"""Tables of other authors, calibrated by random rows: bands hold, and those that give no reason are right."""

from statistics import fmean

import pytest

from tests.bench.elsewhere import UNSEEN, cases, confident, held, near, tables

TRIED = tuple(each for each in tables() if each not in UNSEEN)


@pytest.mark.parametrize("table", TRIED)
def test_random_rows_of_a_table_are_held_by_their_bands(table):
    found = cases(table)
    assert len(found) > 200
    assert held(found) >= 0.8


@pytest.mark.parametrize("table", TRIED)
def test_a_band_that_gives_no_reason_is_right(table):
    sure = confident(cases(table))
    assert len(sure) > 100
    assert held(sure) >= 0.7
    assert near(sure) >= 0.75
    assert fmean(each.miss for each in sure) <= 0.065


@pytest.mark.parametrize("table", UNSEEN)
def test_a_table_that_was_never_tried_is_predicted(table):
    found = cases(table)
    assert (len(found), near(found)) == (12, 1.0)
    assert held(found) >= 0.75
