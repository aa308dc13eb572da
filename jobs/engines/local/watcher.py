"""Watch a supervisor; after its death end its processes and record the run's end.

Parent of the supervisor and subreaper: every process of the run, however it detached itself, is
its descendant. It does nothing else, so that there is nothing in it to go wrong.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from pathlib import Path
from types import FrameType

from jobs.contracts.spec import RunState
from jobs.engines.local.queue import Slots
from jobs.host.files import use_reserve
from jobs.host.processes import kill_leftovers, read_process
from jobs.host.units import now
from jobs.runs.failure import signal_name
from jobs.runs.run_folder import RunEvent, append_event, read_events
from jobs.runs.signatures import forget_signatures

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
KILL_TIMEOUT_S = 8.0


def become_subreaper() -> None:
    """Make orphaned descendants children of this process from now on; not inherited by forks."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_parent(parent: int) -> None:
    """Have SIGTERM sent to this process when its parent, the watcher, is gone."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def watch(run_dir: Path, supervisor: int, compute: str) -> int:
    """Wait for the supervisor's end, then clean up after it; gives the exit code.

    `compute` is the cluster whose nodes the run has.
    """
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    # Asked to end, the whole run ends in order: the supervisor does it.

    def pass_on(number: int, _frame: FrameType | None) -> None:
        os.kill(supervisor, number)

    signal.signal(signal.SIGTERM, pass_on)
    _wait_for(supervisor)
    # Only now may its id go back to the system: nothing is passed on any more.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _, status = os.waitpid(supervisor, 0)
    # Most runs leave nothing behind, and then this looks once.
    kill_leftovers(read_process(os.getpid()), run_dir, timeout_s=KILL_TIMEOUT_S)
    forget_signatures(run_dir)
    events = read_events(run_dir)
    if not events or not events[-1].state.is_terminal():
        use_reserve(run_dir)
        reason = f"its supervisor {_ending(status)}"
        with contextlib.suppress(FileNotFoundError):  # its folder was deleted
            append_event(run_dir, RunEvent(ts=now(), state=RunState.LOST, reason=reason))
    Slots(run_dir.parent.parent, compute).release(run_dir)
    return 0


def _wait_for(supervisor: int) -> None:
    """Reap whatever ends until the supervisor does, which is left for the caller to reap."""
    while True:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        assert ended is not None  # only with WNOHANG
        if ended.si_pid == supervisor:
            return
        os.waitpid(ended.si_pid, 0)


def _ending(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"was killed by {signal_name(os.WTERMSIG(status))}"
    return f"ended unexpectedly with exit code {os.WEXITSTATUS(status)} (see supervisor.log)"
