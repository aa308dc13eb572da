"""Numbers that fit: every optimum that explains the rows, the best first, and draws that count as they fit."""

from __future__ import annotations

import pytest

from jobs.foresight.fit import LeastSquares, fit


def problem(spread: float) -> LeastSquares:
    """Two rows that 2 fits as well as -2, of which 2 is believed beforehand."""
    return LeastSquares(
        misses=lambda at, rows: [at[0] ** 2 - 4 for _ in rows],
        prior=[(2.0, spread)],
        touched=[[0, 1]],
        num_rows=2,
        noise=0.1,
    )


@pytest.mark.parametrize(("spread", "expected"), [(5.0, [2, -2]), (0.5, [2])])
def test_optima_are_apart_the_best_first_and_explain_the_rows(
    spread: float, expected: list[float]
) -> None:
    found = fit(problem(spread), [[-2.5], [-1.5], [1.5], [2.5]], 60)
    assert [each[0] for each in found.optima] == pytest.approx(expected, abs=0.05)
    assert found.best == found.optima[0]
    assert sum(each.weight for each in found.draws) == pytest.approx(1)
    # Where -2 is as good the number is not known.
    assert (found.deviation(0) > 1) == (len(expected) > 1)
