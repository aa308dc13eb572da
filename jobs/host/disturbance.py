"""Tell what else this machine did for a while: time that its host took away, and its load."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

STEAL_TOLD = 0.01
# Of the fields behind `cpu` in /proc/stat (man 5 proc_stat); guest times are in user's already.
_STEAL, _FIELDS = 7, 8


@dataclass(frozen=True, kw_only=True)
class CpuTimes:
    """Ticks of all cores since the start of the machine: those of the host's other guests, and all."""

    stolen: int
    all: int


def read_cpu_times() -> CpuTimes | None:
    """Read the times; None where the system tells none."""
    try:
        words = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()
        ticks = [int(each) for each in words[1 : 1 + _FIELDS]]
    except (OSError, ValueError):
        return None
    return CpuTimes(stolen=ticks[_STEAL], all=sum(ticks)) if len(ticks) == _FIELDS else None


def disturbance(before: CpuTimes | None, after: CpuTimes | None, *, num_ranks: int) -> str | None:
    """Word what took cores from so many busy ranks since `before`; None where nothing is known."""
    told: list[str] = []
    if before and after and after.all > before.all:
        stolen = (after.stolen - before.stolen) / (after.all - before.all)
        if stolen >= STEAL_TOLD:
            told.append(f"{stolen:.0%} of the CPU time went to other guests of the host (steal)")
    cores = os.cpu_count() or 1
    load = os.getloadavg()[0]
    if load > max(num_ranks, cores):
        told.append(f"load {load:.1f} on {cores} cores")
    return ", ".join(told) or None
