"""Reads a gang's signs of life: the time of its last output, and what its processes do."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from jobs.host.processes import Glance, Process, descendants, glance, read_table
from jobs.rank.places import PROGRESS
from jobs.runs.failure import RankReport
from jobs.runs.hanging import Sign

CPU_SAMPLE_S = 0.3
STOPPED = ("T", "t")


class Activity:
    """Watches for a sign of life of any rank: output, a metric, progress, or a byte of a checkpoint.

    A `limit_s` of None is never reached.
    """

    def __init__(self, run_dir: Path, world_size: int, limit_s: float | None) -> None:
        logs = [run_dir / "logs" / f"rank-{rank:05d}.log" for rank in range(world_size)]
        self._files = [*logs, run_dir / "metrics.jsonl", run_dir / PROGRESS]
        self._checkpoints = run_dir / "checkpoints"
        self._limit_s = float("inf") if limit_s is None else limit_s
        self._seen: list[tuple[int, int]] = self._look()
        self._last_s = self._looked_s = time.monotonic()
        self._ahead_s = _ahead_s()

    @property
    def deadline_s(self) -> float:
        """The time at which silence becomes a hang, as far as is known (monotonic clock)."""
        return self._last_s + self._limit_s

    def is_silent(self) -> bool:
        """Look again: whether nothing was written for the whole limit."""
        seen, now_s, ahead_s = self._look(), time.monotonic(), _ahead_s()
        if seen != self._seen:
            # Files have wall clock times. Where that clock was set since the last look, or went on
            # while the machine slept, nobody knows which of its times a file has; and a copy keeps
            # the time of what was copied. Whatever is in doubt makes the wait longer, never shorter.
            sign_s = max(when_ns for _, when_ns in seen) / 1e9 - min(self._ahead_s, ahead_s)
            self._last_s = sign_s if self._looked_s < sign_s < now_s else now_s
        self._seen, self._looked_s, self._ahead_s = seen, now_s, ahead_s
        return now_s >= self.deadline_s

    def _look(self) -> list[tuple[int, int]]:
        below = [
            _size_and_time(Path(folder, name))
            for folder, _, names in os.walk(self._checkpoints)
            for name in names
        ]
        checkpoints = (sum(size for size, _ in below), max((when for _, when in below), default=0))
        return [*map(_size_and_time, self._files), checkpoints]


def _ahead_s() -> float:
    """Give how far the wall clock is ahead of the monotonic one."""
    return time.time() - time.monotonic()


def _size_and_time(file: Path) -> tuple[int, int]:
    try:
        stat = file.lstat()
    except OSError:
        return 0, 0
    return stat.st_size, stat.st_mtime_ns


def observe(run_dir: Path, reports: Sequence[RankReport]) -> list[Sign]:
    """Look at all ranks for a moment (CPU_SAMPLE_S)."""
    before = _Sample(reports)
    time.sleep(CPU_SAMPLE_S)
    after = _Sample(reports)
    return [_sign(run_dir, report, before, after) for report in reports]


class _Sample:
    """The machine at one moment."""

    def __init__(self, reports: Sequence[RankReport]) -> None:
        self.when_s = time.monotonic()
        self.table: dict[int, Process] = read_table()
        self.glances: dict[int, Glance | None] = {each.rank: glance(each.child) for each in reports}


def _sign(run_dir: Path, report: RankReport, before: _Sample, after: _Sample) -> Sign:
    own = [after.table[pid] for pid in (report.pid, report.child) if pid in after.table]
    below = descendants(report.child, after.table) if report.child in after.table else []
    used_s = sum(
        each.cpu_s - before.table[each.pid].cpu_s
        for each in [*own[1:], *below]
        if each.pid in before.table
    )
    first, second = before.glances[report.rank], after.glances[report.rank]
    # Who polls (Horovod does, every millisecond) is now asleep and now runnable, but waits often.
    is_steady = first is not None and second is not None and first.num_waits == second.num_waits
    return Sign(
        rank=report.rank,
        is_stopped=any(each.state in STOPPED for each in own),
        has_exited=report.has_succeeded,
        has_closed_output=report.output_closed_s is not None and report.ended_s is None,
        cpu=used_s / (after.when_s - before.when_s),
        is_runnable=is_steady
        and all(
            report.child in sample.table and sample.table[report.child].state == "R"
            for sample in (before, after)
        ),
        is_asleep=report.ended_s is None and is_steady and second is not None and second.is_asleep,
        silent_s=_silence(run_dir / "logs" / f"rank-{report.rank:05d}.log"),
    )


def _silence(log: Path) -> float:
    try:
        return time.time() - log.stat().st_mtime
    except OSError:
        return float("inf")
