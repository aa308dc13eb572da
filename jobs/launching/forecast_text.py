"""Write what is foreseen of a job for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite

from jobs.contracts.spec import Cluster, JobSpec
from jobs.foresight.choose import Choice
from jobs.foresight.work import Band, Forecast
from jobs.host.console import count_text, duration_text, figure_text
from jobs.launching.foresee import Foreseen
from jobs.stacks.cost import money_text


def forecast_pairs(found: Foreseen, spec: JobSpec, cluster: Cluster) -> list[tuple[str, str]]:
    """Lay out a forecast as names and values of the plan."""
    one = found.forecast
    if one is None:
        return [("forecast", found.unknown)] if found.unknown else []
    pairs = [("forecast", _figures_text(one, found, cluster)), ("binds", _binds_text(found))]
    is_endless = one.time_s is not None and not isfinite(one.time_s.middle)
    more = found.twice_the_nodes
    if more and isfinite(more.dearer) and not is_endless:
        is_dearer = more.dearer >= 1
        times = figure_text(more.dearer if is_dearer else 1 / more.dearer)
        change = (
            f"{figure_text(more.faster)}x faster, {times}x {'dearer' if is_dearer else 'cheaper'}"
        )
        pairs.append(("twice", f"with {2 * one.nodes} nodes: {change}"))
    if one.restarts and not is_endless:
        kept = f", `retry.max` is {spec.retry.max}"
        pairs.append(("restarts", f"{one.restarts:.1f} expected of low-priority nodes{kept}"))
    pairs.append(("known by", _source_text(found)))
    return pairs


def _figures_text(one: Forecast, found: Foreseen, cluster: Cluster) -> str:
    parts = [f"{_band(one.rate, figure_text)} {found.unit}s/s"]
    if one.time_s is None:
        parts.append("time not known: no run before told how much work it is")
    elif not isfinite(one.time_s.middle):
        parts.append("no end: nodes are taken away sooner than checkpoints are written")
    else:
        parts.append(_band(one.time_s, duration_text))
        if one.cost and one.cost.middle:
            parts.append(_band(one.cost, lambda each: money_text(each, cluster.currency)))
        hours, what = (one.gpu_hours, "GPU") if one.gpu_hours else (one.node_hours, "node")
        if hours:
            parts.append(f"{figure_text(hours.middle)} {what}-hours")
    return ", ".join(parts)


def _band(band: Band, text: Callable[[float], str]) -> str:
    low, middle, high = text(band.low), text(band.middle), text(band.high)
    return middle if low == high else f"{middle} ({low} to {high})"


def _binds_text(found: Foreseen) -> str:
    assert found.forecast is not None
    text = found.forecast.binds.value
    if found.next_limit:
        text += (
            f"; from {count_text(found.next_limit.nodes, 'node')} on {found.next_limit.limit.value}"
        )
    return text


def _source_text(found: Foreseen) -> str:
    assert found.forecast is not None
    if found.published:
        text = f"{found.published}, half to twice of it; run it once, e.g. with --nodes 1"
    else:
        text = f"{count_text(found.num_runs, 'run')} of this job, the newest {found.runs[0]}"
        text += "" if found.is_measured else "; none of this size"
    if found.forecast.source:
        text += f"; the exchange between nodes by {found.forecast.source}"
    if found.forecast.why_wide:
        text += f"; wide band: {found.forecast.why_wide}"
    return text


def chosen_text(one: Forecast, cluster: Cluster, *, by_deadline: bool) -> str:
    """Say which layout was chosen and why."""
    why = "cheapest that keeps the deadline" if by_deadline else "fastest that keeps the budget"
    where = f"{count_text(one.nodes, 'node')} of cluster `{one.cluster}` ({_priority(cluster)})"
    return f"chose {where}, the {why} in 19 of 20 cases: {_most(one, cluster)}"


def none_text(choice: Choice, clusters: Mapping[str, Cluster]) -> str:
    """Say that no layout was found, and which came nearest."""
    one = choice.nearest
    if one is None:
        return "none: no run of this job has told its rate on a cluster that it may run on"
    if one.time_s is None:
        return "none: no run of this job has told yet how much work it is"
    cluster = clusters[one.cluster]
    where = f"{count_text(one.nodes, 'node')} of cluster `{one.cluster}` ({_priority(cluster)})"
    if choice.lacks_retries:
        return f"none: nodes may be taken away more often than `retry.max` allows, least of all {where}"
    return f"none: no layout keeps it in 19 of 20 cases; nearest is {where}: {_most(one, cluster)}"


def _priority(cluster: Cluster) -> str:
    return cluster.priority.replace("_", " ")


def _most(one: Forecast, cluster: Cluster) -> str:
    if one.time_s is None or not isfinite(one.time_s.high):
        return "without an end"
    text = f"{duration_text(one.time_s.high)} at most"
    cost = one.cost.high if one.cost else None
    if cost is None:
        return f"{text}, at an unknown price"
    return f"{text}, {money_text(cost, cluster.currency)}" if cost else f"{text}, free"
