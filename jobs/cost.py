"""What a job costs: its cluster's price by the hour, and the most that its limits allow (pure)."""

from __future__ import annotations

from jobs.spec import Cluster, JobSpec


def price_per_hour(spec: JobSpec, cluster: Cluster) -> float | None:
    """The price of all nodes of the job; None where the stack does not know it."""
    price = cluster.price_per_node_hour
    return None if price is None else price * spec.nodes


def price_text(spec: JobSpec, cluster: Cluster) -> str:
    """The price in words, with the most it can come to where there is a limit."""
    price = price_per_hour(spec, cluster)
    if price is None:
        return "unknown"
    if price == 0:
        return "free"
    currency = cluster.currency or ""
    text = f"{price:.2f} {currency}/h".replace(" /", "/")
    if spec.limits.wall_clock_s is None:
        return text
    most = price * spec.limits.wall_clock_s / 3600
    return f"{text}, at most {most:.2f} {currency}".rstrip()
