"""Judges how fast ranks add up: bus bandwidth, floors of VM sizes, pairs of nodes, slow ones (pure).

Bus bandwidth as nccl-tests defines it: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

GIB = 1 << 30
# A node whose best pair has less than this share of what the median node's best pair has is slow.
SLOW_SHARE = 0.8
# Below this many nodes no pair tells which of its two is the slow one.
LEAST_TO_COMPARE = 3
MOST_ROUNDS = 3


@dataclass(frozen=True, kw_only=True)
class Floor:
    """The least bus bandwidth (GB/s) of an all-reduce over one node's GPUs, and its message's bytes."""

    gb_per_s: float
    num_bytes: int


# The limits of Azure's own health checks: `check_nccl_allreduce` in conf/SIZE.conf of
# https://github.com/Azure/azurehpc-health-checks, read 2026-11-23. All are of one node; none is
# published for several.
FLOORS: Mapping[str, Floor] = {
    "standard_nc96ads_a100_v4": Floor(gb_per_s=25, num_bytes=8 * GIB),
    "standard_nd96asr_v4": Floor(gb_per_s=228, num_bytes=8 * GIB),
    "standard_nd96amsr_a100_v4": Floor(gb_per_s=228, num_bytes=4 * GIB),
    "standard_nd96isr_h100_v5": Floor(gb_per_s=460, num_bytes=16 * GIB),
    "standard_nd96isr_h200_v5": Floor(gb_per_s=431, num_bytes=16 * GIB),
}


def find_floor(vm_size: str | None) -> Floor | None:
    """Give the floor of a VM size; None where there is none, or the size is not known."""
    return FLOORS.get((vm_size or "").lower())


def algorithm_bandwidth(num_bytes: int, seconds: float) -> float:
    """Give the message's size over its time, in GB/s (10^9 bytes)."""
    return num_bytes / seconds / 1e9


def bus_bandwidth(num_bytes: int, seconds: float, num_ranks: int) -> float:
    """Give what each link carried of an all-reduce, in GB/s: comparable at any number of ranks."""
    return algorithm_bandwidth(num_bytes, seconds) * 2 * (num_ranks - 1) / num_ranks


def message_sizes(most_bytes: int) -> list[int]:
    """List sizes from 8 bytes, each four times the one before, and `most_bytes` last."""
    smaller = [8 << (2 * power) for power in range(32)]
    return [*(size for size in smaller if size < most_bytes), most_bytes]


def pair_rounds(num_units: int, most: int = MOST_ROUNDS) -> list[list[tuple[int, int]]]:
    """Pair units for a few rounds: in each round a unit has one partner at most, another one each time.

    The circle method of tournaments; with an odd number one unit rests in each round.
    """
    seats: list[int | None] = [*range(num_units), *([None] if num_units % 2 else [])]
    # Who rests in a round needs another one to have met as many.
    most += num_units % 2
    rounds: list[list[tuple[int, int]]] = []
    for _ in range(min(most, len(seats) - 1) if num_units > 1 else 0):
        half = len(seats) // 2
        pairs = zip(seats[:half], reversed(seats[half:]), strict=True)
        rounds.append([(a, b) for a, b in pairs if a is not None and b is not None])
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return rounds


def best_of_pairs(measured: Sequence[tuple[int, int, float]], num_units: int) -> list[float]:
    """Give each unit's highest figure of its pairs: a slow partner does not count against it."""
    best = [0.0] * num_units
    for first, second, figure in measured:
        best[first] = max(best[first], figure)
        best[second] = max(best[second], figure)
    return best


def slow_units(best: Sequence[float]) -> list[int]:
    """List the units that are slow, the slowest first; none where too few can be compared."""
    if len(best) < LEAST_TO_COMPARE:
        return []
    limit = SLOW_SHARE * statistics.median(best)
    found = [unit for unit, figure in enumerate(best) if figure < limit]
    return sorted(found, key=lambda unit: best[unit])


def size_text(num_bytes: int) -> str:
    """Write a number of bytes that is a power of two, or close to one."""
    power = min(int(math.log2(num_bytes)) // 10, 3)
    return f"{num_bytes / (1 << (10 * power)):g} {('B', 'KiB', 'MiB', 'GiB')[power]}"


def time_text(seconds: float) -> str:
    """Write a time in the unit that it has digits in."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} us"
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"
