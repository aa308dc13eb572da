"""Choose the cheapest layout that keeps a deadline, or the fastest within a budget."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import msgspec

from jobs.foresight.work import Forecast


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the layout that was chosen; None where no one keeps both, with the nearest miss then.

    With `lacks_retries` that is the one of the fewest restarts, and the job may have fewer than any
    layout needs.
    """

    chosen: Forecast | None
    nearest: Forecast | None
    lacks_retries: bool = False


def choose(
    candidates: Sequence[Forecast],
    *,
    deadline_s: float | None = None,
    budget: float | None = None,
) -> Choice:
    """Choose by the slow and dear ends of the bands, so that both are kept in 19 of 20 cases.

    With a deadline the cheapest that keeps it wins (within the budget, if one is given), and of
    equally cheap ones the faster; without one the fastest within the budget. The nearest miss is
    the one that goes over by the least factor.
    """

    def over(each: Forecast) -> float:
        late = _time(each) / deadline_s if deadline_s else 0.0
        dear = _cost(each) / budget if budget else 0.0
        return max(late, dear)

    kept = [each for each in candidates if over(each) <= 1]
    if deadline_s is None:
        chosen = min(kept, key=lambda each: (_time(each), _cost(each)), default=None)
    else:
        chosen = min(kept, key=lambda each: (_cost(each), _time(each)), default=None)
    nearest = None if chosen else min(candidates, key=over, default=None)
    return Choice(chosen=chosen, nearest=nearest)


def _time(each: Forecast) -> float:
    return each.time_s.high if each.time_s else inf


def _cost(each: Forecast) -> float:
    return each.cost.high if each.cost else inf
