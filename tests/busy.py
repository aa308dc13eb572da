"""Bounds in time that grow with what else the machine does; it is asked only once one is passed."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from math import ceil

POLL_S = 0.01
# So late an answer is none, however busy the machine: for what only tells a hang from a slow one.
HANG_S = 300.0
# A test waits for a limit that it gives a job in each run, not only where something is wrong.
MOST_FOR_A_LIMIT = 4
WORK = "import argparse, json, subprocess"


def how_busy() -> float:
    """How many times longer than on an idle machine things take now; 1 at least.

    A small process tells how long it waited for a processor beside what it computed; the load of the
    last minute tells what has just ended.
    """
    began_s = time.monotonic()
    pid = os.posix_spawn(sys.executable, [sys.executable, "-I", "-c", WORK], os.environ)
    usage = os.wait4(pid, 0)[2]
    took_s = time.monotonic() - began_s
    waited = took_s / max(usage.ru_utime + usage.ru_stime, 0.001)
    return max(1.0, waited, os.getloadavg()[0] / (os.cpu_count() or 1))


def limit_s(seconds: float) -> float:
    """Give a job's limit which a job that gets no processor for so long does not reach."""
    return seconds * min(ceil(how_busy()), MOST_FOR_A_LIMIT)


class Bound:
    """So many seconds from now on, on a machine that has time to spare."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._granted_s = seconds
        self._began_s = time.monotonic()

    def is_passed(self) -> bool:
        """Tell whether it is, for a test that counts how often."""
        try:
            self.check()
        except AssertionError:
            return True
        return False

    def check(self, what: object = "") -> None:
        """Fail once the bound is passed even for a machine as busy as this one."""
        took_s = time.monotonic() - self._began_s
        if took_s < self._granted_s:
            return
        busy = how_busy()
        # Asked at every look, it would itself keep the machine busy.
        self._granted_s = self.seconds * busy
        seen = what() if callable(what) else what
        told = f"{took_s:.1f} s, bound {self.seconds:g} s, machine {busy:.1f} times as slow: {seen}"
        assert took_s < self._granted_s, told


def wait_until(
    is_so: Callable[[], object],
    within_s: float = 30.0,
    what: Callable[[], object] = str,
    *,
    over: Callable[[], object] = lambda: None,
) -> None:
    """Look until it is so; `what` tells what is there instead.

    Once `over` (a process's `poll`, say) gives anything but None, it is so now or never.
    """
    bound = Bound(within_s)
    while not is_so():
        if (ended := over()) is not None:
            assert is_so(), f"over ({ended}): {what()}"
            return
        bound.check(what)
        time.sleep(POLL_S)
