"""Hold the rows of a table of rates, and what is predicted from them."""

from __future__ import annotations

import msgspec

from jobs.foresight.model import Term


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Hold one size of a series; it has a rate where it was measured."""

    series: str  # one network on one kind of hardware
    gpus: int
    gpus_per_node: int
    rate: float | None = None  # samples/s of all GPUs together
    gradient_mb: float | None = None
    batch_per_gpu: float | None = None
    overhead_s: float | None = None  # of a step, which the rate of one GPU does not hold
    fabric: str = ""

    @property
    def nodes(self) -> int:
        """Return the number of nodes that hold the GPUs."""
        return -(-self.gpus // self.gpus_per_node)


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """Give the rate of all GPUs together, with the band that holds it in 9 of 10 cases."""

    series: str
    gpus: int
    rate: float
    low: float
    high: float
    binds: Term
    why_wide: str | None = None
