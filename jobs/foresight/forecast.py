"""Forecast a job on a layout: its rate, time and cost with their bands, and the limit that binds.

docs/foresight.md explains each term. All functions are pure and need the standard library alone.
"""

from __future__ import annotations

from math import hypot, inf, sqrt

from jobs.foresight.predict import NINE_OF_TEN
from jobs.foresight.work import (
    RESTARTS,
    TRAINING,
    Band,
    Forecast,
    Limit,
    Place,
    Speed,
    SpeedAt,
    Takeover,
    Twice,
    Work,
)

MOST_NODES = 1024  # beyond which no takeover is looked for
Rates = dict[Limit, Band]


def forecast(work: Work, place: Place, nodes: int, speed: Speed) -> Forecast:
    """Forecast a job on so many nodes; `speed` is that of its training there."""
    rates = _rates(work, place, nodes, speed)
    rate = Band(
        middle=min(each.middle for each in rates.values()),
        low=min(each.low for each in rates.values()),
        high=min(each.high for each in rates.values()),
    )
    time_s, restarts, parts = _time(work, place, nodes, rate)
    hours = time_s.times(nodes / 3600) if time_s else None
    return Forecast(
        cluster=place.cluster,
        nodes=nodes,
        processes_per_node=place.processes_per_node,
        rate=rate,
        time_s=time_s,
        cost=_cost(hours, place.price_per_node_hour),
        node_hours=hours,
        gpu_hours=hours.times(place.gpus_per_node) if hours and place.gpus_per_node else None,
        binds=_binding(work, place, nodes, rates, speed),
        restarts=restarts,
        why_wide=speed.why_wide,
        source=speed.source,
        parts=parts,
    )


def takeover(work: Work, place: Place, nodes: int, speed_at: SpeedAt) -> Takeover | None:
    """Find the least number of nodes above this one at which another limit binds.

    Doubles the nodes up to 1024, then halves the gap: a limit that binds between two doublings
    alone is passed over.
    """

    def binds(count: int) -> Limit:
        speed = speed_at(count)
        return _binding(work, place, count, _rates(work, place, count, speed), speed)

    now, below, above = binds(nodes), nodes, nodes * 2
    while (found := binds(above)) is now:
        below, above = above, above * 2
        if above > MOST_NODES:
            return None
    while above - below > 1:
        middle = (below + above) // 2
        there = binds(middle)
        if there is now:
            below = middle
        else:
            above, found = middle, there
    return Takeover(nodes=above, limit=found)


def twice(one: Forecast, two: Forecast) -> Twice:
    """Compare the times and the node hours of two forecasts; the rates where the work is not known."""
    if one.time_s and two.time_s:
        faster = one.time_s.middle / two.time_s.middle if one.time_s.middle < inf else 1.0
        return Twice(faster=faster, dearer=two.nodes / one.nodes / faster if faster else inf)
    faster = two.rate.middle / one.rate.middle
    return Twice(faster=faster, dearer=two.nodes / one.nodes / faster)


def _cost(hours: Band | None, price: float | None) -> Band | None:
    if hours is None or price is None:
        return None
    return hours.times(price) if price else Band.sure(0.0)  # of an endless one, too


def _rates(work: Work, place: Place, nodes: int, speed: Speed) -> Rates:
    """Compute the rate that each part of the training allows by itself; the slowest decides."""
    rates = {Limit(speed.binds.value): speed.rate}
    if work.decoded_per_core:
        rates[Limit.LOADER] = work.decoded_per_core.times(place.cores_per_node * nodes)
    if work.sample_bytes and place.line_bytes_per_s:
        rates[Limit.LINE] = Band.sure(place.line_bytes_per_s * nodes / work.sample_bytes)
    if work.sample_bytes and (store := _store_bytes_per_s(place)) < inf:
        rates[Limit.STORE] = Band.sure(store / work.sample_bytes)
    return rates


def _store_bytes_per_s(place: Place) -> float:
    requests = place.store_requests_per_s
    return min(
        inf if place.store_bytes_per_s is None else place.store_bytes_per_s,
        inf if requests is None else requests * place.request_bytes,
    )


def _parts(work: Work, place: Place, nodes: int, rate: float) -> dict[Limit, float]:
    """Compute the seconds of all that is not training."""
    line = inf if place.line_bytes_per_s is None else place.line_bytes_per_s
    to_node = min(line, _store_bytes_per_s(place) / nodes)
    return {
        Limit.START: work.start_s.middle,
        Limit.DATA: work.download_bytes / to_node,
        Limit.CHECKPOINTS: _checkpoints_s(work, place, rate),
        Limit.EVALUATION: work.evaluation_s.middle * _evaluations(work, place, nodes),
    }


def _checkpoints_s(work: Work, place: Place, rate: float) -> float:
    """Compute how long the training stands still for checkpoints.

    One rank writes them while the training goes on; it waits where one takes longer than the time
    to the next.
    """
    kept = work.checkpoints
    if kept is None or work.samples is None:
        return 0.0
    line = inf if place.line_bytes_per_s is None else place.line_bytes_per_s
    late_s = max(kept.bytes / min(line, _store_bytes_per_s(place)) - kept.every_s, 0.0)
    return work.samples / rate / kept.every_s * (kept.blocking_s + late_s)


def _evaluations(work: Work, place: Place, nodes: int) -> float:
    """Count the evaluations as those of one rank that come one after the other."""
    return work.num_evaluations / (nodes * place.processes_per_node)


def _binding(work: Work, place: Place, nodes: int, rates: Rates, speed: Speed) -> Limit:
    slowest = min(rates, key=lambda each: rates[each].middle)
    rate = rates[slowest].middle
    eased = speed.relieved if slowest is Limit(speed.binds.value) else 2 * rate
    eased = min([eased, *(each.middle for limit, each in rates.items() if limit is not slowest)])
    if work.samples is None:
        return slowest
    gains = {slowest: work.samples / rate - work.samples / eased}
    gains |= {limit: each / 2 for limit, each in _parts(work, place, nodes, rate).items()}
    return max(gains, key=gains.__getitem__)


def _time(
    work: Work, place: Place, nodes: int, rate: Band
) -> tuple[Band | None, float, dict[str, float]]:
    """Compute the time from the request to the end, the restarts in it, and its parts."""
    if work.samples is None:
        return None, 0.0, {}
    train_s = Band(
        middle=work.samples / rate.middle,
        low=work.samples / rate.high,
        high=work.samples / rate.low,
    )
    evaluation_s = work.evaluation_s.times(_evaluations(work, place, nodes))
    varied = (train_s, work.start_s, evaluation_s)
    parts = _parts(work, place, nodes, rate.middle)
    middle = train_s.middle + sum(parts.values())
    low = middle - hypot(*(each.middle - each.low for each in varied))
    high = middle + hypot(*(each.high - each.middle for each in varied))
    evictions_per_s = place.evictions_per_node_hour * nodes / 3600
    every_s = work.checkpoints.every_s if work.checkpoints else inf
    lost_s = min(every_s, train_s.middle) / 2 + parts[Limit.START] + parts[Limit.DATA]
    # Time is lost again in the time that a restart costs.
    left = 1 - evictions_per_s * lost_s
    if left <= 0:
        return Band.sure(inf), inf, {}
    restarts, few, many = (each * evictions_per_s / left for each in (middle, low, high))
    time_s = Band(
        middle=middle + restarts * lost_s,
        low=low + max(few - _spread(few), 0.0) * lost_s,
        high=high + (many + _spread(many)) * lost_s,
    )
    told = {TRAINING: train_s.middle, **{limit.value: each for limit, each in parts.items()}}
    return time_s, restarts, {**told, RESTARTS: restarts * lost_s}


def _spread(restarts: float) -> float:
    """Compute how many more there are in 1 of 20 cases: they come at random, as Poisson's."""
    return NINE_OF_TEN * sqrt(restarts)
