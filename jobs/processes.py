"""Looking at and ending processes through /proc (Linux)."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Process(NamedTuple):
    """One line of the process table."""

    pid: int
    parent: int
    state: str
    cpu_s: float


def read_process(pid: int) -> Process | None:
    """Look at one process; None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 (hundreds in a row)
            stat = file.read()
    except OSError:
        return None
    # The name in parentheses may hold spaces and parentheses itself.
    fields = stat[stat.rindex(b")") + 2 :].split()
    cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
    return Process(pid=pid, parent=int(fields[1]), state=fields[0].decode(), cpu_s=cpu_s)


def read_table() -> dict[int, Process]:
    """All processes of the machine, by id."""
    found = (read_process(int(name)) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208
    return {process.pid: process for process in found if process}


def is_asleep(pid: int) -> bool:
    """Whether a process's main thread waits for time to pass (not for data, not for a lock)."""
    try:
        return b"nanosleep" in Path(f"/proc/{pid}/wchan").read_bytes()
    except OSError:
        return False


def descendants(root: int, table: dict[int, Process]) -> list[Process]:
    """All processes below `root`, nearest first."""
    children: dict[int, list[Process]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    waiting = list(children.get(root, ()))
    while waiting:
        found += waiting
        waiting = [child for each in waiting for child in children.get(each.pid, ())]
    return found


def of_run(run_dir: Path, pids: Collection[int]) -> list[int]:
    """Those processes that were started as part of a run, by their environment."""
    mark = b"TRAINYARD_RUN_DIR=" + os.fsencode(run_dir) + b"\0"
    found: list[int] = []
    for pid in pids:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123
                environment = file.read()
        except OSError:
            continue
        if mark in environment:
            found.append(pid)
    return found


def leftovers(root: int | None, run_dir: Path, spare: Collection[int] = ()) -> list[int]:
    """Living processes of a run: below `root`, or bearing the run's mark wherever they are."""
    assert root is None or root > 1, "below init is everything on the machine"
    table = read_table()
    below = [each.pid for each in descendants(root, table) if each.state != "Z"] if root else []
    elsewhere = set(table) - set(below) - {root, os.getpid()}
    living = [pid for pid in of_run(run_dir, elsewhere) if table[pid].state != "Z"]
    return [pid for pid in below + living if pid not in spare and pid != os.getpid()]


def kill_leftovers(
    root: int | None, run_dir: Path, *, spare: Collection[int] = (), timeout_s: float
) -> list[int]:
    """Kill what `leftovers` finds until it finds nothing; gives what still lives at the end.

    Again and again, since a process may fork while it is being looked for.
    """
    deadline = time.monotonic() + timeout_s
    while pids := leftovers(root, run_dir, spare):
        for pid in pids:
            send(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return pids
        time.sleep(0.005)
    return []


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal; silent when the process is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
