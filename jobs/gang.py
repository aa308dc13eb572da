"""Supervises one run on this machine: queue, preparation, a gang of ranks, its end.

    python -m jobs.gang RUN_DIR LOCK_FD      with a Handover in memory as the standard input

Forks at once: the parent becomes the watcher (jobs.watcher), the child supervises. Each wait is
for a signal (a rank ended, somebody pokes) or for the next deadline; nothing is polled.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from pathlib import Path
from types import FrameType

import msgspec
from msgspec import Struct, structs

from jobs import supervision
from jobs.errors import ExitCode, LaunchError
from jobs.failure import (
    HANG_EXIT_CODE,
    PREEMPTED_EXIT_CODE,
    hang_error,
    is_conclusive,
    is_in_collective,
    name_hanging,
    root_cause,
    stalled_error,
    summary_line,
)
from jobs.launchers import GangRequest
from jobs.meeting import Meeting
from jobs.preparation import prepare
from jobs.processes import MARK
from jobs.ranks import Ranks
from jobs.runs import RunEvent, append_event, now, read_record, use_reserve, write_file
from jobs.slots import Slots
from jobs.spec import RankError, RunRecord, RunState
from jobs.supervision import Handover
from jobs.vitals import Activity, observe
from jobs.watcher import become_subreaper, end_with_parent, watch

QUEUE_RECHECK_S = 1.0  # a claim whose holder and watcher were both killed pokes nobody
GRACE_S = 4.0  # between asking a rank to end and killing it
STACKS_S = 2.0  # for the ranks of a hanging gang to write their stacks
# For the guilty rank to end, when the first to end blames a peer: on a busy machine a framework
# takes seconds to leave. With the grace it stays within the 10 s in which the others must be gone.
SETTLE_S = 2.5


class Outcome(Struct, frozen=True, kw_only=True):
    """How the run ended."""

    state: RunState
    reason: str | None = None
    exit_code: int | None = None
    error: RankError | None = None


class Interrupted(Exception):
    """The run is to end before its time; says why."""


class Wakeup:
    """Waits for signals or a deadline, and knows whether somebody asked to end the run."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._is_told_to_end = False
        self._read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGUSR1):
            signal.signal(number, _ignore)
        for number in (signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._end)

    def wait(self, timeout_s: float | None = None, *fds: int) -> None:
        """Sleep until a signal, a readable `fd` or the timeout."""
        poller = select.poll()
        for fd in (self._read, *fds):
            poller.register(fd, select.POLLIN)
        poller.poll(None if timeout_s is None else max(0.0, timeout_s) * 1000)
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 1 << 12)

    def wait_interruptibly(self, timeout_s: float | None = None, *fds: int) -> None:
        """The same; raises Interrupted when the run is to end."""
        self.check()
        self.wait(timeout_s, *fds)
        self.check()

    def check(self) -> None:
        """Raise Interrupted when somebody asked to end the run."""
        if supervision.is_cancel_asked(self._run_dir):
            reason = "cancelled"
            raise Interrupted(reason)
        if self._is_told_to_end:
            reason = "its supervisor was told to end (SIGTERM)"
            raise Interrupted(reason)

    def _end(self, *_: object) -> None:
        self._is_told_to_end = True


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """To be woken is all; SIG_IGN would not wake."""


class Supervisor:
    """One run from its place in the queue to its last event."""

    def __init__(
        self,
        run_dir: Path,
        record: RunRecord,
        handover: Handover,
        wakeup: Wakeup,
    ) -> None:
        self._run_dir = run_dir
        self._spec = record.plan.spec
        self._request = msgspec.convert(record.plan.request, GangRequest)
        self._handover = handover
        self._wakeup = wakeup
        self._slots = Slots(run_dir.parent.parent, self._request.compute)
        self._ranks = Ranks(run_dir, self._request, wait=wakeup.wait)

    def run(self) -> None:
        """Take the run to its end; there is exactly one last event, and then no process is left."""
        try:
            self._prepare(self._wait_for_nodes())
            outcome = self._run_gang()
        except Interrupted as interruption:
            outcome = self._end_early(str(interruption))
        except LaunchError as error:
            outcome = self._give_up(error.message + (f" ({error.hint})" if error.hint else ""))
        except OSError as error:
            outcome = self._give_up(str(error))
        try:
            use_reserve(self._run_dir)
            if outcome.error is not None:
                with contextlib.suppress(OSError):  # the event says the main thing, too
                    write_file(self._run_dir / "error.json", msgspec.json.encode(outcome.error))
            self._enter(outcome.state, outcome.reason, outcome.exit_code)
        finally:
            # Last, so that by the events, too, the next run starts after this one's end.
            self._slots.release(self._run_dir)

    def _wait_for_nodes(self) -> tuple[int, ...]:
        said = None
        while True:
            nodes = self._slots.claim(self._run_dir, self._request.capacity_nodes)
            if nodes is not None:
                return nodes
            reason = self._why_queued()
            if reason != said:
                self._enter(RunState.QUEUED, reason)
                said = reason
            self._wakeup.wait_interruptibly(QUEUE_RECHECK_S)

    def _why_queued(self) -> str:
        before = self._slots.ahead_of(self._run_dir)
        if before:
            return f"{before} {'run' if before == 1 else 'runs'} before it in the queue"
        count = self._spec.nodes
        wanted = f"{count} {'node' if count == 1 else 'nodes'} of `{self._spec.cluster}`"
        holders = self._slots.holders()
        return f"waits for {wanted}" + (f", in use by {', '.join(holders)}" if holders else "")

    def _prepare(self, nodes: tuple[int, ...]) -> None:
        self._wakeup.check()
        self._enter(RunState.PREPARING)
        prepare(
            self._run_dir,
            self._spec,
            self._request,
            environment=self._handover.environment,
            interpreter=self._handover.interpreter,
            nodes=nodes,
            wait=self._wakeup.wait_interruptibly,
        )

    def _run_gang(self) -> Outcome:
        marked = {**os.environ, MARK: str(self._run_dir)}
        meeting = Meeting(self._request.launcher, self._handover.interpreter, marked)
        shared = {**marked, **self._request.env, **meeting.environment, **self._handover.secrets}
        shared[MARK] = marked[MARK]
        self._enter(RunState.RUNNING)
        self._ranks.start(self._handover.interpreter, shared, helper=meeting.helper)
        started_s = time.monotonic()
        outcome = self._watch_over(started_s)
        if outcome is None:
            self._ranks.clean_up()
            outcome = self._judge(None)
        return outcome

    def _watch_over(self, started_s: float) -> Outcome | None:
        """Wait until the ranks ended (None) or have to be ended."""
        limits = self._spec.limits
        limit_s = started_s + limits.wall_clock_s if limits.wall_clock_s else float("inf")
        activity = Activity(self._run_dir, self._spec.world_size, limits.hang_s)
        failed_s: float | None = None
        while True:
            self._ranks.reap()
            if not self._ranks.are_living:
                return None
            now_s = time.monotonic()
            settled_s = float("inf")
            if self._ranks.has_failure:
                failed_s = failed_s or now_s
                settled_s = failed_s + SETTLE_S
                if now_s >= settled_s or is_conclusive(self._ranks.reports()):
                    return self._end_failed()
            if self._ranks.is_helper_lost:
                return self._end_failed()
            if now_s >= limit_s:
                return self._end_overdue(limits.wall_clock_s or 0)
            if now_s >= activity.deadline_s and activity.is_silent():
                return self._end_hanging()
            next_s = min(limit_s, settled_s, activity.deadline_s)
            self._wakeup.wait_interruptibly(next_s - now_s)

    # --- the ways to end ---------------------------------------------------------------------

    def _end_failed(self) -> Outcome:
        """A rank failed: name it, end the others."""
        stalled: RankError | None = None
        reports = self._ranks.reports()
        if not is_conclusive(reports):
            # All blame a peer: perhaps one that did not end but stands still.
            living = [each for each in reports if each.ended_s is None]
            stopped = [sign for sign in observe(self._run_dir, living) if sign.is_stopped]
            if stopped:
                stalled = stalled_error(reports[stopped[0].rank])
        stopped_s = time.monotonic()
        self._ranks.stop(GRACE_S)
        return self._judge(stopped_s, stalled)

    def _end_hanging(self) -> Outcome:
        """Nobody gave a sign of life: find out who holds up the others, and where they are."""
        signs = observe(self._run_dir, self._ranks.reports())
        self._ranks.abort(STACKS_S)
        reports = self._ranks.reports()
        signs = [
            structs.replace(sign, is_in_collective=is_in_collective(report.traceback))
            for sign, report in zip(signs, reports, strict=True)
        ]
        rank, why = name_hanging(signs, self._request.launcher)
        error = hang_error(reports[rank], self._spec.limits.hang_s, why)
        return self._failed(error)

    def _end_overdue(self, limit_s: float) -> Outcome:
        self._ranks.stop(GRACE_S)
        reason = f"limits.wall_clock: it ran longer than {limit_s:g} s"
        return Outcome(state=RunState.FAILED, reason=reason, exit_code=HANG_EXIT_CODE)

    def _end_early(self, reason: str) -> Outcome:
        self._ranks.stop(GRACE_S)
        if reason != "cancelled" and any(
            each.exit_code == PREEMPTED_EXIT_CODE for each in self._ranks.reports()
        ):
            return Outcome(state=RunState.PREEMPTED, reason=reason, exit_code=PREEMPTED_EXIT_CODE)
        return Outcome(state=RunState.CANCELLED, reason=reason, exit_code=ExitCode.CANCELLED)

    def _give_up(self, message: str) -> Outcome:
        """Our own part failed: the disk, the inputs, the runtime."""
        self._ranks.stop(GRACE_S)
        return self._failed(self._error("cannot run", message))

    def _judge(self, stopped_s: float | None, stalled: RankError | None = None) -> Outcome:
        """All ranks are over: did they do it, and if not, whose fault was it?"""
        if not self._ranks.has_failure and not self._ranks.is_helper_lost:
            torn = [each for each in self._ranks.reports() if each.log_error]
            reason = f"rank {torn[0].rank}: {torn[0].log_error}" if torn else None
            return Outcome(state=RunState.COMPLETED, reason=reason, exit_code=0)
        error = root_cause(self._ranks.reports(), stopped_s=stopped_s)
        if stalled is not None and (error is None or error.cause != "out of memory"):
            error = stalled
        if error is None:
            what = "mpirun" if self._request.launcher == "mpi" else "its meeting place"
            error = self._error(f"{what} failed", self._last_words())
        if error.exit_code == PREEMPTED_EXIT_CODE:
            reason = f"rank {error.rank} checkpointed and left (exit code {PREEMPTED_EXIT_CODE})"
            return Outcome(state=RunState.PREEMPTED, reason=reason, exit_code=error.exit_code)
        return self._failed(error)

    def _failed(self, error: RankError) -> Outcome:
        return Outcome(
            state=RunState.FAILED,
            reason=summary_line(error),
            exit_code=error.exit_code,
            error=error,
        )

    def _error(self, cause: str, message: str) -> RankError:
        return RankError(
            rank=None,
            host=os.uname().nodename,
            cause=cause,
            message=message,
            traceback=None,
            exit_code=1,
        )

    def _last_words(self) -> str:
        """What mpirun or the store's host wrote last."""
        lines = (self._run_dir / "supervisor.log").read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it left no message"

    def _enter(
        self, state: RunState, reason: str | None = None, exit_code: int | None = None
    ) -> None:
        event = RunEvent(ts=now(), state=state, reason=reason, exit_code=exit_code)
        append_event(self._run_dir, event)


def main() -> int:
    """Become the watcher, and in a child the supervisor, of the run that the arguments name."""
    run_dir, lock = Path(sys.argv[1]), int(sys.argv[2])
    # It was for this process; the ranks would find our packages before their own.
    os.environ.pop("PYTHONPATH", None)
    become_subreaper()
    os.chdir(run_dir)
    os.set_inheritable(lock, False)
    watcher = os.getpid()
    supervisor = os.fork()
    if supervisor:
        return watch(run_dir, supervisor)
    wakeup = Wakeup(run_dir)
    end_with_parent(watcher)
    # Too, so that orphans are still below it when the watcher was killed.
    become_subreaper()
    supervision.announce(lock)
    handover = msgspec.json.decode(sys.stdin.buffer.read(), type=Handover)
    os.ftruncate(sys.stdin.fileno(), 0)  # the secrets need to be nowhere but here
    Supervisor(run_dir, read_record(run_dir), handover, wakeup).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
