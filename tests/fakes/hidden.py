"""Finds the processes that tests/faults/programs/daemons.py hid, and a stranger to be spared."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jobs.contracts.spec import RunHandle
from jobs.host.processes import Process, read_process, read_table, send
from tests.busy import wait_until
from tests.fakes.gangs import PROGRAMS, Gangs

DAEMONS = str(PROGRAMS / "daemons.py")
NUM_WAYS = 5
NUM_RANKS = 2
GONE_S = 10.0


def living(pid: int, start: int) -> Process | None:
    """The process that started then, while it lives."""
    process = read_process(pid)
    if process is None or process.start != start or process.state == "Z":
        return None
    return process


def hidden(handle: RunHandle) -> list[Process]:
    """What the ranks hid and still lives."""
    file = Path(handle.run_dir, "hidden")
    lines = file.read_text().splitlines() if file.exists() else []
    found = [living(*map(int, line.split())) for line in lines]
    return [process for process in found if process is not None]


def start_daemons(gangs: Gangs, *ways: str) -> RunHandle:
    """A run whose ranks have hidden their processes."""
    handle = gangs.submit(["python", DAEMONS, *ways], processes_per_node=NUM_RANKS)
    wanted = NUM_RANKS * (len(ways) or NUM_WAYS)
    wait_until(
        lambda: len(hidden(handle)) >= wanted,
        60,
        lambda: f"{hidden(handle)}, {gangs.engine.store.status(handle)}",
    )
    return handle


def wait_until_all_gone(gangs: Gangs, handle: RunHandle) -> None:
    """Wait until nothing of the run is left, hidden or not."""
    gangs.wait_until_gone(handle, GONE_S)
    wait_until(lambda: not hidden(handle), GONE_S, lambda: f"left: {hidden(handle)}")


def end_hidden(handle: RunHandle) -> None:
    """End what is still hidden: for the one case in which the engine cannot."""
    for process in hidden(handle):
        send(process, signal.SIGKILL)


@contextmanager
def strangers() -> Iterator[list[Process]]:
    """Two processes that are nobody's business: a child of the test and an orphan of init."""
    with subprocess.Popen(["sleep", "3600"]) as child:
        # `sleep` outlives its shell; the shell tells its id.
        told = subprocess.run(
            ["sh", "-c", "setsid sleep 3600 >/dev/null 2>&1 & echo $!"],
            capture_output=True,
            check=True,
        )
        orphan = int(told.stdout)
        table = read_table()
        processes = [table[child.pid], table[orphan]]
        assert table[orphan].parent != os.getpid()
        try:
            yield processes
        finally:
            for process in processes:
                send(process, signal.SIGKILL)


def are_living(processes: list[Process]) -> list[bool]:
    """For each of them whether it still lives."""
    return [living(each.pid, each.start) is not None for each in processes]
