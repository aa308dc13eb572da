"""Read the stacks of a run's ranks: as they stand, or as they were recorded at its end."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from jobs.contracts.spec import RunHandle
from jobs.host.python_stacks import RawThread, read_stacks
from jobs.runs.show_text import read_ranks
from jobs.runs.stacks import Frame, Stacks, Thread, grouped, parse_traceback


def living_stacks(handle: RunHandle, processes: Mapping[int, int]) -> Stacks:
    """Read the stacks of ranks whose processes are known; raises EnvironmentFailure without py-spy."""
    found = read_stacks(list(processes.values()))
    ranks: dict[int, list[Thread]] = {}
    without: dict[int, str] = {}
    for rank, pid in processes.items():
        threads = found[pid]
        if isinstance(threads, str):
            without[rank] = threads
        else:
            ranks[rank] = [_of_run(_thread(each), handle) for each in threads]
    return grouped(ranks, without)


def recorded_stacks(handle: RunHandle) -> Stacks:
    """Read the stacks that ranks wrote when they were ended for a hang; no groups where none did."""
    ranks: dict[int, list[Thread]] = {}
    for report in read_ranks(Path(handle.run_dir)):
        if threads := parse_traceback(report.traceback or ""):
            ranks[report.rank] = [_of_run(each, handle) for each in threads]
    return grouped(ranks, {}, is_recorded=True)


def _thread(raw: RawThread) -> Thread:
    frames = [Frame(function=each.name, file=each.filename, line=each.line) for each in raw.frames]
    return Thread(
        name=raw.thread_name or "",
        is_main=raw.is_main,
        is_active=raw.active,
        frames=tuple(frames),
    )


def _of_run(thread: Thread, handle: RunHandle) -> Thread:
    """Name the files of the job's code alike on all nodes: each has a copy of its own."""
    copy = re.compile(re.escape(handle.run_dir) + r"/nodes/\d+/")
    frames = [replace(each, file=copy.sub("", each.file)) for each in thread.frames]
    return replace(thread, frames=tuple(frames))
