"""What a job costs: its cluster's price by the hour, the most its limits allow, what it came to (pure).

All of it is the nodes' list price times the time of the ranks. What Azure bills beside that is not
in it: nodes while they start and idle, disks, storage, network.
"""

from __future__ import annotations

from jobs.console import count_text, duration_text
from jobs.spec import Cluster, JobSpec


def price_per_hour(spec: JobSpec, cluster: Cluster) -> float | None:
    """The price of all nodes of the job; None where it is not known."""
    price = cluster.price_per_node_hour
    return None if price is None else price * spec.nodes


def price_text(spec: JobSpec, cluster: Cluster) -> str:
    """The price in words, with the most it can come to where there is a limit, and how old it is."""
    price = price_per_hour(spec, cluster)
    if price is None:
        return "unknown"
    if price == 0:
        return "free"
    text = f"{money_text(price, cluster.currency)}/h"
    if spec.limits.wall_clock_s is not None:
        most = price * spec.limits.wall_clock_s / 3600
        text += f", at most {money_text(most, cluster.currency)}"
    return text + as_of_text(cluster)


def spent_text(spec: JobSpec, cluster: Cluster, ran_s: float) -> str:
    """What the time that a run has run comes to; empty where nothing is paid or known."""
    price = price_per_hour(spec, cluster)
    if not price:
        return ""
    spent = money_text(price * ran_s / 3600, cluster.currency)
    nodes = count_text(spec.nodes, "node")
    rate = money_text(cluster.price_per_node_hour or 0.0, cluster.currency)
    return f"about {spent} ({nodes} x {duration_text(ran_s)} at {rate}/h){as_of_text(cluster)}"


def money_text(amount: float, currency: str | None) -> str:
    """An amount; small ones with a tenth of a cent, as nodes are priced."""
    digits = 3 if 0 < amount < 1 else 2
    return f"{amount:.{digits}f} {currency or ''}".rstrip()


def as_of_text(cluster: Cluster) -> str:
    """The day of a list price, in brackets; empty for the stack's own."""
    return f" (list price of {cluster.price_as_of})" if cluster.price_as_of else ""
