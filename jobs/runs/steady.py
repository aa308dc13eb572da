"""Find the steady part of a run and the rate of it, from the places that it passed (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import comb
from statistics import median, pvariance, stdev

from msgspec import Struct

from jobs.runs.pace import Place

LEAST_WINDOWS, MOST_WINDOWS = 5, 20
# A rate that varies more than this (standard deviation / mean of its windows) is noisy.
NOISY = 0.03
# A stretch that takes so much longer than its units do holds an evaluation or a checkpoint.
_PAUSED = 2.0
CONFIDENCE = 0.95


class Steady(Struct, frozen=True, kw_only=True):
    """Rate of a run without warm-up and pauses, in units/s: median of windows, 95 % interval.

    With five windows, the fewest, the interval is that of 94 %. `seconds` are those of the windows.
    """

    rate: float
    low: float
    high: float
    variation: float
    num_windows: int
    seconds: float
    warm_up_s: float


def steady(places: Sequence[Place]) -> Steady | None:
    """Measure the newest attempt; None while fewer windows than LEAST_WINDOWS are known.

    Where the warm-up ends is where the standard error of what follows is least (the rule of MSER:
    K. P. White, Simulation 69, 1997), within the first half.
    """
    stretches = _without_pauses(_stretches(places))
    if len(stretches) < LEAST_WINDOWS:
        return None
    begin = _end_of_warm_up([units / seconds for units, seconds in stretches])
    windows = _windows(stretches[begin:])
    rates = sorted(units / seconds for units, seconds in windows)
    rank = _rank_of_bound(len(rates))
    return Steady(
        rate=median(rates),
        low=rates[rank],
        high=rates[-1 - rank],
        variation=stdev(rates) * len(rates) / sum(rates),
        num_windows=len(rates),
        seconds=sum(seconds for _, seconds in windows),
        warm_up_s=sum(seconds for _, seconds in stretches[:begin]),
    )


def _stretches(places: Sequence[Place]) -> list[tuple[float, float]]:
    """List units and seconds between the places of the newest attempt."""
    begin = max((at for at, place in enumerate(places) if place.done is None), default=-1)
    found: list[tuple[float, float]] = []
    for before, after in pairwise(places[begin + 1 :]):
        units = (after.done or 0.0) - (before.done or 0.0)
        if units < 0:  # an attempt that nobody announced
            found.clear()
        elif units > 0 and after.time_s > before.time_s:
            found.append((units, after.time_s - before.time_s))
    return found


def _without_pauses(stretches: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    if not stretches:
        return []
    usual_s = median(seconds / units for units, seconds in stretches)
    return [each for each in stretches if each[1] <= _PAUSED * each[0] * usual_s]


def _end_of_warm_up(rates: Sequence[float]) -> int:
    most = min(len(rates) // 2, len(rates) - LEAST_WINDOWS)
    return min(range(most + 1), key=lambda at: pvariance(rates[at:]) / (len(rates) - at))


def _windows(stretches: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Join neighbours until there are at most MOST_WINDOWS; what does not fill one is left out."""
    size = -(-len(stretches) // MOST_WINDOWS)
    groups = [stretches[at : at + size] for at in range(0, len(stretches) - size + 1, size)]
    return [
        (sum(units for units, _ in group), sum(seconds for _, seconds in group)) for group in groups
    ]


def _rank_of_bound(number: int) -> int:
    """Give the place of the interval's lower bound of a median among so many sorted values."""
    below, rank = 0.0, 0
    while True:
        below += comb(number, rank) / 2**number
        if below > (1 - CONFIDENCE) / 2:
            return max(rank - 1, 0)
        rank += 1
