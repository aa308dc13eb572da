"""Estimates what a proof costs, before and while it runs, from list prices (pure but for the prices)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from jobs.contracts.errors import Refused
from jobs.stacks.prices import list_prices

# USD an hour. Of private endpoints: docs/azure.md, "Cost of an idle stack". A Standard registry has
# no sourced price; the Premium one's is its upper bound.
ENDPOINT = 0.01
REGISTRY = 1.6666 / 24
ENDPOINTS = {"dev": 4, "test": 13}


@dataclass(frozen=True, kw_only=True)
class Prices:
    """USD an hour of a node and of an idle stack."""

    node: float
    idle: float

    def of(self, *, hours: float, node_hours: float) -> float:
        """Estimate in USD."""
        return self.idle * hours + self.node * node_hours


def find_prices(stage: str, size: str, location: str) -> Prices:
    """Find the prices; a size without one is refused, as nothing could hold the limit."""
    found = list_prices(location, {size}).get((size, "dedicated"))
    if found is None:
        message = f"the price of {size} in {location} is unknown, so the cost cannot be limited"
        raise Refused(message, hint="--location of a region in jobs/stacks/list_prices.csv")
    # At the price of dedicated nodes, though the stacks have low-priority ones: an upper bound.
    return Prices(node=found.amount, idle=ENDPOINTS[stage] * ENDPOINT + REGISTRY)


def estimate(prices: Prices, minutes: Iterable[tuple[float, float]]) -> float:
    """Sum up the steps: minutes each, and minutes of nodes."""
    rows = list(minutes)
    return prices.of(
        hours=sum(each for each, _ in rows) / 60, node_hours=sum(each for _, each in rows) / 60
    )
