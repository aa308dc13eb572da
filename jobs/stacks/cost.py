"""Computes what a job costs: its cluster's price an hour, the most by its limits, the amount so
far.

All of it is the nodes' list price times the time of the ranks. What Azure bills beside that is not
in it: nodes while they start and idle, disks, storage, network.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from jobs.contracts.spec import Cluster, Environment, JobSpec, RunStatus
from jobs.host.console import count_text, duration_text
from jobs.runs.outcome import parse_time

if TYPE_CHECKING:
    from jobs.runs.outcome import AttemptBrief


TENTH_OF_A_CENT = 0.001


def price_per_hour(spec: JobSpec, cluster: Cluster) -> float | None:
    """Compute the price of all nodes of the job; None where it is not known."""
    price = cluster.price_per_node_hour
    return None if price is None else price * spec.nodes


def price_text(spec: JobSpec, cluster: Cluster) -> str:
    """Write the price, its upper bound where there is a limit, and its age."""
    price = price_per_hour(spec, cluster)
    if price is None:
        return "unknown"
    if price == 0:
        return "free"
    text = f"{money_text(price, cluster.currency)}/h"
    if spec.limits.wall_clock_s is not None:
        most = price * spec.limits.wall_clock_s / 3600
        at_most = "" if _is_tiny(most) else "at most "
        text += f", {at_most}{money_text(most, cluster.currency)}"
    return text + as_of_text(cluster)


class Spent(Struct, frozen=True, kw_only=True):
    """The cost of a run so far, of all attempts on all nodes; `at_end` where the time left is known."""

    amount: float
    currency: str | None
    num_nodes: int
    ran_s: float
    price_per_node_hour: float
    price_as_of: str | None
    at_end: float | None = None


def spent(
    status: RunStatus,
    attempts: Sequence[AttemptBrief],
    environment: Environment,
    *,
    left_s: float | None = None,
) -> Spent | None:
    """Compute the cost of a run so far, and at its end `left_s` from now.

    None if it is free or the price is unknown.
    """
    cluster = environment.clusters.get(status.cluster)
    price = cluster.price_per_node_hour if cluster else None
    if cluster is None or not price or not attempts:
        return None
    now = datetime.fromtimestamp(time.time(), UTC)
    ran_s = sum(_run_time_s(each, now) for each in attempts)
    price_per_s = price * status.nodes / 3600
    return Spent(
        amount=price_per_s * ran_s,
        currency=cluster.currency,
        num_nodes=status.nodes,
        ran_s=ran_s,
        price_per_node_hour=price,
        price_as_of=cluster.price_as_of,
        at_end=None if left_s is None else price_per_s * (ran_s + left_s),
    )


def spent_text(cost: Spent) -> str:
    """Write an amount with its factors."""
    amount, rate = (
        money_text(each, cost.currency) for each in (cost.amount, cost.price_per_node_hour)
    )
    nodes = count_text(cost.num_nodes, "node")
    as_of = f", {_list_price(cost.price_as_of)}" if cost.price_as_of else ""
    about = "" if _is_tiny(cost.amount) else "about "
    at_end = ""
    if cost.at_end is not None:
        at_end = f", about {money_text(cost.at_end, cost.currency)} at the end"
    return f"{about}{amount} ({nodes} x {duration_text(cost.ran_s)} at {rate}/h{as_of}){at_end}"


def _run_time_s(attempt: AttemptBrief, now: datetime) -> float:
    end = parse_time(attempt.ended) if attempt.ended else now
    return max((end - parse_time(attempt.started)).total_seconds(), 0.0)


def money_text(amount: float, currency: str | None) -> str:
    """Write an amount; small ones with a tenth of a cent, as nodes are priced."""
    digits = 3 if 0 < amount < 1 else 2
    number = f"under {TENTH_OF_A_CENT}" if _is_tiny(amount) else f"{amount:.{digits}f}"
    return f"{number} {currency or ''}".rstrip()


def _is_tiny(amount: float) -> bool:
    return 0 < amount < TENTH_OF_A_CENT


def as_of_text(cluster: Cluster) -> str:
    """Write the day of a list price, in brackets; empty for the stack's own."""
    return f" ({_list_price(cluster.price_as_of)})" if cluster.price_as_of else ""


def _list_price(as_of: str) -> str:
    return f"list price of {as_of}"
