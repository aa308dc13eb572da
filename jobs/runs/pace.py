"""Estimate how fast a run goes on and what it stops for, from the places that it passed (pure)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median, median_low

from msgspec import Struct

# A stretch that takes so much longer than its units do holds a pause.
_PAUSED = 2.0
# The first stretches of an attempt that are so much slower than the others are its warm-up.
_WARMING_UP = 1.5
# A pause that is so much longer than the others does not come again.
_STALLED = 3.0
# Pauses are regular where none is further off than this part of their distance.
_OFF_BEAT = 0.25
# The part of the units, the newest ones, that the pace is taken from.
_NEWEST = 0.6


class Place(Struct, frozen=True, kw_only=True):
    """Amount done at a time (seconds since 1970); None where an attempt begins."""

    time_s: float
    done: float | None


class Pace(Struct, frozen=True, kw_only=True):
    """Seconds of a unit, of the pauses that come again, and of what came once.

    A pause of `pause_s` comes every `pause_every` units, the last one at `paused_at`. `start_up_s` is
    the time from each attempt's beginning to the first place that it passed, `redone_s` that of units
    that were done in an attempt before.
    """

    unit_s: float
    pause_s: float = 0.0
    pause_every: float | None = None
    paused_at: float = 0.0
    num_pauses: int = 0
    start_up_s: float = 0.0
    warm_up_s: float = 0.0
    stalls_s: float = 0.0
    redone_s: float = 0.0

    def left_s(self, done: float, total: float) -> float:
        """Forecast the seconds from `done` to `total`, pauses included."""
        num_pauses = 0
        if self.pause_every is not None:
            # The pause that is due at the very end counts.
            # An attempt that fell back behind the last one meets it again.
            ahead = (total - min(self.paused_at, done)) / self.pause_every
            num_pauses = max(math.floor(ahead + _OFF_BEAT), 0)
        return max(total - done, 0.0) * self.unit_s + num_pauses * self.pause_s


class _Stretch(Struct, frozen=True, kw_only=True):
    """Way from one place to the next; the first ones of an attempt may be a warm-up."""

    attempt: int
    begin: float
    units: float
    seconds: float

    @property
    def middle(self) -> float:
        return self.begin + self.units / 2

    def excess_s(self, unit_s: float) -> float:
        """Seconds beyond those of its units."""
        return self.seconds - self.units * unit_s


def pace_of(places: Sequence[Place], *, per_epoch: float | None, from_zero: bool) -> Pace | None:
    """Estimate the pace; None while fewer than two places of one attempt are known.

    `per_epoch` are the units of an epoch, at whose end programs evaluate. `from_zero` says that the
    first attempt began with nothing done, so that one place is enough.
    """
    stretches = list(_stretches(places))
    start_up_s = sum(_start_ups(places))
    if not stretches:
        known = [each for each in places if each.done is not None]
        if not from_zero or len(known) != 1 or places[0].done is not None:
            return None
        done, elapsed_s = known[0].done or 0.0, known[0].time_s - places[0].time_s
        return Pace(unit_s=elapsed_s / done) if done > 0 and elapsed_s > 0 else None
    warm_up, settled = _without_warm_up(stretches)
    unit_s = _usual_unit_s(settled)
    warm_up_s = sum(each.excess_s(unit_s) for each in warm_up)
    paused = [each for each in settled if each.seconds > _PAUSED * each.units * unit_s]
    stalls, regular, every = _sorted_pauses(paused, unit_s, settled[-1], per_epoch)
    left_out = {id(each) for each in (*stalls, *regular)}
    unit_s = _mean_unit_s(settled, unit_s, left_out)
    return Pace(
        unit_s=unit_s,
        pause_s=sum(each.excess_s(unit_s) for each in regular) / max(len(regular), 1),
        pause_every=every,
        paused_at=regular[-1].middle if regular else 0.0,
        num_pauses=len(regular),
        start_up_s=start_up_s,
        warm_up_s=max(warm_up_s, 0.0),
        stalls_s=sum(each.excess_s(unit_s) for each in stalls),
        redone_s=_redone(places) * unit_s,
    )


def _stretches(places: Sequence[Place]) -> Iterator[_Stretch]:
    """Yield what lies between places of one attempt; a step back begins another one."""
    attempt, before = 0, None
    for place in places:
        if place.done is None:
            attempt, before = attempt + 1, None
            continue
        if before is None or before.done is None or place.done < before.done:
            attempt, before = attempt + (before is not None), place
            continue
        units, seconds = place.done - before.done, place.time_s - before.time_s
        if units > 0 and seconds > 0:
            yield _Stretch(attempt=attempt, begin=before.done, units=units, seconds=seconds)
            before = place


def _start_ups(places: Sequence[Place]) -> Iterator[float]:
    for begun, first in pairwise(places):
        if begun.done is None and first.done is not None:
            yield max(first.time_s - begun.time_s, 0.0)


def _redone(places: Sequence[Place]) -> float:
    """Add up the units that attempts fell back by."""
    amounts = [each.done for each in places if each.done is not None]
    return sum(max(before - after, 0.0) for before, after in pairwise(amounts))


def _usual_unit_s(stretches: Sequence[_Stretch]) -> float:
    """Give the pace that half of the units were faster than."""
    ordered = sorted(stretches, key=lambda each: each.seconds / each.units)
    half, passed = sum(each.units for each in ordered) / 2, 0.0
    for each in ordered:
        passed += each.units
        if passed >= half:
            return each.seconds / each.units
    return ordered[-1].seconds / ordered[-1].units


def _without_warm_up(stretches: Sequence[_Stretch]) -> tuple[list[_Stretch], list[_Stretch]]:
    """Part the slow beginning of each attempt from the rest, which is never empty."""
    unit_s = _usual_unit_s(stretches)
    warm_up: list[_Stretch] = []
    settled: list[_Stretch] = []
    warming_up: int | None = None
    for before, each in pairwise([None, *stretches]):
        assert each is not None, "pairs end with a stretch"
        if before is None or before.attempt != each.attempt:
            warming_up = each.attempt
        if warming_up is not None and each.seconds > _WARMING_UP * each.units * unit_s:
            warm_up.append(each)
        else:
            warming_up = None
            settled.append(each)
    return warm_up, settled


def _sorted_pauses(
    paused: Sequence[_Stretch], unit_s: float, newest: _Stretch, per_epoch: float | None
) -> tuple[list[_Stretch], list[_Stretch], float | None]:
    """Part pauses into what came once and what comes again, and give how often that is.

    Many without a beat are neither: they belong to the pace.
    """
    if not paused:
        return [], [], None
    usual_s = median_low(each.excess_s(unit_s) for each in paused)
    stalls = [each for each in paused if each.excess_s(unit_s) > _STALLED * usual_s]
    likely = [each for each in paused if each not in stalls]
    every = _beat(likely, newest.begin + newest.units, per_epoch)
    if every is not None:
        return stalls, likely, every
    return (stalls, [], None) if len(likely) > 2 else ([*stalls, *likely], [], None)


def _beat(paused: Sequence[_Stretch], done: float, per_epoch: float | None) -> float | None:
    """Find the units between regular pauses; None where there is no beat, or it has ceased."""
    paused = _without_redone(paused)
    last = paused[-1]
    if len(paused) == 1:
        if per_epoch is None:
            return None
        end = max(round(last.middle / per_epoch), 1) * per_epoch
        is_at_end = last.begin - 0.01 * per_epoch <= end <= last.begin + 1.01 * last.units
        return per_epoch if is_at_end and done - end < (1 + _OFF_BEAT) * per_epoch else None
    gaps = [after.middle - before.middle for before, after in pairwise(paused)]
    every = median(gaps)
    beats = [max(round(gap / every), 1) for gap in gaps]
    if any(abs(gap - n * every) > _OFF_BEAT * every for gap, n in zip(gaps, beats, strict=True)):
        return None
    every = sum(gaps) / sum(beats)
    return every if done - last.middle < 2 * every else None


def _without_redone(paused: Sequence[_Stretch]) -> list[_Stretch]:
    """Leave out pauses at units that a later attempt did again: one place would count twice."""
    found: list[_Stretch] = []
    for each in paused:
        while found and found[-1].begin + found[-1].units > each.begin:
            found.pop()
        found.append(each)
    return found


def _mean_unit_s(settled: Sequence[_Stretch], unit_s: float, left_out: set[int]) -> float:
    """Give the mean pace of the newest units; of a pause that is left out only its units count."""
    wanted, units, seconds = _NEWEST * sum(each.units for each in settled), 0.0, 0.0
    for each in reversed(settled):
        units += each.units
        seconds += each.units * unit_s if id(each) in left_out else each.seconds
        if units >= wanted:
            break
    return seconds / units
