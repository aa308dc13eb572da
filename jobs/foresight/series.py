"""Tell what each series brings to all of its sizes: its step on one GPU, its gradient and its batch (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import hypot, log2

import msgspec

from jobs.foresight.rows import Row

# Of a series that tells nothing else.
USUAL_BATCH = 64.0
USUAL_GRADIENT_MB = 100.0
USUAL_EFFICIENCY = 0.92
# Standard deviations, as logarithms: how far the time of an exchange of a series is from what its
# gradient says (given; given, but of a fabric without a name; not given); of a one-GPU step that a
# row gives, that none gives, and for each doubling of the batch from the one that was measured.
GIVEN, UNNAMED, UNKNOWN = 0.05, 0.35, 1.0
ONE_GPU, NO_ONE_GPU, DOUBLED_BATCH = 0.012, 0.15, 0.12


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what a series brings to each of its sizes."""

    ones: list[
        tuple[float, float]
    ]  # batches on one GPU with the seconds of their steps, smallest first
    has_one_gpu: bool
    overhead_s: float
    gradient_mb: float
    gradient_spread: float
    batch: float
    is_batch_known: bool

    def one_gpu_s(self, batch: float) -> float:
        """Compute the seconds of a step on one GPU, between measured batches by a straight line."""
        for (small, small_s), (large, large_s) in pairwise(self.ones):
            if small <= batch <= large:
                return small_s + (large_s - small_s) * (batch - small) / (large - small)
        near, seconds = min(self.ones, key=lambda each: abs(log2(batch / each[0])))
        return seconds * batch / near

    def doublings(self, batch: float) -> float:
        """Count how often a measured batch must be doubled or halved to reach a batch."""
        if self.ones[0][0] <= batch <= self.ones[-1][0]:
            return 0.0
        return min(abs(log2(batch / each)) for each, _ in self.ones)

    def sample_spread(self, batch: float) -> float:
        """Give the standard deviation of the one-GPU step, as a logarithm."""
        known = ONE_GPU if self.has_one_gpu else NO_ONE_GPU
        return hypot(known, DOUBLED_BATCH * self.doublings(batch))


def base_of(rows: Sequence[Row], fabric: str) -> Base:
    """Sum up the measured rows of one series for its sizes on a fabric.

    The rate of one GPU that was measured on the fabric counts, else that of no fabric, else any.
    """
    batches = [row.batch_per_gpu for row in rows if row.batch_per_gpu]
    gradients = [row.gradient_mb for row in rows if row.gradient_mb]
    batch = batches[0] if batches else USUAL_BATCH
    ones = _one_gpu(rows, fabric)
    if ones:
        steps = _steps(ones, batch)
    else:
        fastest = min(row.gpus / row.rate for row in rows if row.rate)
        steps = [(batch, batch * fastest * USUAL_EFFICIENCY)]
    is_named = any(row.fabric for row in rows)
    is_known = bool(gradients and batches)
    return Base(
        ones=steps,
        has_one_gpu=bool(ones),
        overhead_s=max(row.overhead_s or 0.0 for row in rows),
        gradient_mb=gradients[0] if gradients else USUAL_GRADIENT_MB,
        gradient_spread=(GIVEN if is_named else UNNAMED) if is_known else UNKNOWN,
        batch=batch,
        is_batch_known=bool(batches),
    )


def _one_gpu(rows: Sequence[Row], fabric: str) -> list[Row]:
    ones = [row for row in rows if row.gpus == 1 and row.rate]
    for wanted in (fabric, ""):
        there = [row for row in ones if row.fabric == wanted]
        if there:
            return there
    return ones


def _steps(ones: Sequence[Row], usual: float) -> list[tuple[float, float]]:
    """Give the mean step of each batch."""
    found: dict[float, list[float]] = {}
    for row in ones:
        batch = row.batch_per_gpu or usual
        found.setdefault(batch, []).append(batch / (row.rate or 1.0))
    return sorted((batch, sum(steps) / len(steps)) for batch, steps in found.items())
