"""Tables of other authors, calibrated by random rows: what a band says that it knows, it knows."""

from statistics import fmean

import pytest

from tests.bench.elsewhere import cases, confident, held, near, tables

TRIED = tuple(tables())


@pytest.mark.parametrize("table", TRIED)
def test_random_rows_of_another_table_are_held_by_their_bands(table):
    found = cases(table)
    assert len(found) > 100
    assert held(found) >= 0.85


@pytest.mark.parametrize("table", TRIED)
def test_a_band_that_gives_no_reason_is_right(table):
    sure = confident(cases(table))
    assert len(sure) >= 20
    assert held(sure) >= 0.75
    assert near(sure) >= 0.75
    assert fmean(each.miss for each in sure) <= 0.07
