"""Puts a supervisor to sleep until a signal, a readable file, a deadline, or a request to end."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from pathlib import Path
from types import FrameType
from typing import Literal

from jobs.runs import supervision

Cause = Literal["cancel", "signal", "watcher"]
LONGEST_WAIT_S = 86400.0


class Interrupted(Exception):
    """The run is to end before its time.

    Somebody gave it up for good, its machine is wanted back, or its watcher is gone.
    """

    def __init__(self, reason: str, cause: Cause) -> None:
        super().__init__(reason)
        self.reason = reason
        self.cause: Cause = cause


class Wakeup:
    """Waits for signals or a deadline, and knows whether somebody asked to end the run.

    `watcher` is the parent, whose end is told by SIGTERM (jobs.engines.local.watcher.end_with_parent).
    """

    def __init__(self, run_dir: Path, watcher: int) -> None:
        self._run_dir = run_dir
        self._watcher = watcher
        self._is_told_to_end = False
        self._read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGUSR1):
            signal.signal(number, _ignore)
        for number in (signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._end)

    def wait(self, timeout_s: float | None = None, *fds: int) -> None:
        """Sleep until a signal, a readable `fd` or the timeout; a day at most."""
        poller = select.poll()
        for fd in (self._read, *fds):
            poller.register(fd, select.POLLIN)
        # It counts milliseconds in 31 bits; who waits looks again.
        longest_s = LONGEST_WAIT_S if timeout_s is None else min(timeout_s, LONGEST_WAIT_S)
        poller.poll(max(0.0, longest_s) * 1000)
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 1 << 12)

    def wait_interruptibly(self, timeout_s: float | None = None, *fds: int) -> None:
        """Sleep as `wait` does; raises Interrupted if the run is to end."""
        self.check()
        self.wait(timeout_s, *fds)
        self.check()

    def check(self) -> None:
        """Raise Interrupted when somebody asked to end the run."""
        if supervision.is_cancel_asked(self._run_dir):
            reason = "cancelled"
            raise Interrupted(reason, "cancel")
        if self._is_told_to_end and os.getppid() != self._watcher:
            reason = "its watcher was killed"
            raise Interrupted(reason, "watcher")
        if self._is_told_to_end:
            reason = "its supervisor was told to end (SIGTERM)"
            raise Interrupted(reason, "signal")

    def _end(self, *_: object) -> None:
        self._is_told_to_end = True


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Do nothing but wake up; SIG_IGN would not wake."""
