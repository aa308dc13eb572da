"""Looks at processes and ends them, through /proc (Linux).

Ids are reused, and some (0, 1, -1) mean half the machine: a process is known by its id and the
time it started at, and nothing with an id of 1 or less is ever sent a signal.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

# Names the run in the environment of all that is started for it. A variable of its own, not
# TRAINYARD_RUN_DIR: somebody may well set that one by hand, to look at a run with a program.
MARK = "TRAINYARD_GANG"
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Process(NamedTuple):
    """A row of the process table; `start` is when it started, in clock ticks since boot."""

    pid: int
    parent: int
    state: str
    cpu_s: float
    start: int


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
    parent, start = int(fields[1]), int(fields[19])
    return Process(pid=pid, parent=parent, state=fields[0].decode(), cpu_s=cpu_s, start=start)


def read_words(pid: int) -> list[bytes]:
    """Read a process's command line; no words when it is gone."""
    return _read_list(pid, "cmdline")


def read_variables(pid: int) -> list[bytes]:
    """Read a process's environment as `NAME=value`; none when it is gone or another user's."""
    return _read_list(pid, "environ")


def _read_list(pid: int, name: str) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:  # noqa: PTH123
            return file.read().rstrip(b"\0").split(b"\0")
    except OSError:
        return []


def read_table() -> dict[int, Process]:
    """Read the table of all processes, by id."""
    found = (read_process(int(name)) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208
    return {process.pid: process for process in found if process}


class Glance(NamedTuple):
    """State of a process's main thread at one moment.

    `is_asleep`: it waits for time to pass (not for data, not for a lock). `num_waits` is how often
    it has given its core away of its own accord since it started.
    """

    is_asleep: bool
    num_waits: int


def glance(pid: int) -> Glance | None:
    """Look at a process's main thread; None when it is gone."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:  # noqa: PTH123
            status = file.read()
        with open(f"/proc/{pid}/wchan", "rb") as file:  # noqa: PTH123
            place = file.read()
    except OSError:
        return None
    num_waits = int(status.partition(b"\nvoluntary_ctxt_switches:")[2].split(maxsplit=1)[0])
    return Glance(is_asleep=b"nanosleep" in place, num_waits=num_waits)


def descendants(root: int, table: dict[int, Process]) -> list[Process]:
    """List the processes below `root`, nearest first."""
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
    """Select the processes that were started as part of a run, by their environment."""
    mark = f"{MARK}=".encode() + os.fsencode(run_dir)
    return [pid for pid in pids if mark in read_variables(pid)]


def supervisors_of(run_dir: Path) -> list[Process]:
    """Find this user's supervisor and watcher of a run, by their command lines."""
    found: list[Process] = []
    for process in read_table().values():
        words = read_words(process.pid)
        if b"jobs.engines.local.supervisor" in words and os.fsencode(run_dir) in words:
            with contextlib.suppress(OSError):  # gone meanwhile
                if os.stat(f"/proc/{process.pid}").st_uid == os.getuid():  # noqa: PTH116
                    found.append(process)
    return found


def remains(run_dir: Path) -> list[Process]:
    """Find living processes of a run that were found without its folder's help."""
    return supervisors_of(run_dir) or leftovers(None, run_dir)


def leftovers(root: Process | None, run_dir: Path, spare: Collection[int] = ()) -> list[Process]:
    """Find living processes of a run: below `root`, or bearing the run's mark wherever they are.

    Without a root, or where it is gone, only the mark counts. Never the caller itself.
    """
    table = read_table()
    below: list[int] = []
    if root is not None and _is_same(root, table.get(root.pid)):
        assert root.pid > 1, "below init is everything on the machine"
        below = [each.pid for each in descendants(root.pid, table)]
    elsewhere = of_run(run_dir, set(table) - set(below) - ({root.pid} if root else set()))
    return [
        table[pid]
        for pid in (*below, *elsewhere)
        if table[pid].state != "Z" and pid not in spare and pid not in (1, os.getpid())
    ]


def kill_leftovers(
    root: Process | None, run_dir: Path, *, spare: Collection[int] = (), timeout_s: float
) -> list[Process]:
    """Kill the processes that `leftovers` finds until it finds none; gives those alive at the end.

    Again and again, since a process may fork while it is being looked for.
    """
    deadline = time.monotonic() + timeout_s
    while processes := leftovers(root, run_dir, spare):
        for process in processes:
            send(process, signal.SIGKILL)
        if time.monotonic() > deadline:
            return processes
        time.sleep(0.005)
    return []


def send(process: Process, number: signal.Signals) -> None:
    """Send a signal to exactly this process; silent when it is gone or not ours to signal."""
    assert process.pid > 1, f"a signal to process {process.pid} would reach more than one"
    try:
        # The handle first, then the look at who it is: the id cannot change hands in between.
        handle = os.pidfd_open(process.pid)
    except OSError:
        return
    try:
        if _is_same(process, read_process(process.pid)):
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(handle, number)
    finally:
        os.close(handle)


def send_to_group(group: int, number: signal.Signals) -> None:
    """Send a signal to a process group that is not ours; silent when it is gone."""
    assert group > 1, f"a signal to group {group} would reach everybody"
    assert group != os.getpgrp(), "a signal to this process's own group"
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _is_same(known: Process, seen: Process | None) -> bool:
    return seen is not None and (seen.pid, seen.start) == (known.pid, known.start)


def names_in_use(folder: Path) -> set[str]:
    """Name what lies in a folder and is run, loaded or named by a process of this user."""
    wanted = re.compile(re.escape(os.fsencode(folder)) + rb"/([^/\0\s:;\"']+)")
    found: set[str] = set()
    for pid in read_table():
        for kind in ("cmdline", "environ", "maps"):
            for text in _read_list(pid, kind):
                found.update(map(os.fsdecode, wanted.findall(text)))
    return found


def supervised_folders() -> list[Path]:
    """List the folders of all runs of this user that a supervisor looks after."""
    found: set[Path] = set()
    for pid in read_table():
        words = read_words(pid)
        if b"jobs.engines.local.supervisor" in words[:-2]:
            found.add(Path(os.fsdecode(words[-2])))
    return sorted(found)
