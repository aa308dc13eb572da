"""Runs one attempt: starts its gang, watches over it, ends it, judges how it ended."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct, structs

from jobs.contracts.errors import ExitCode
from jobs.contracts.spec import JobSpec, RankError, RunState
from jobs.engines.local.containers import Containers, rank_environ
from jobs.engines.local.gang import Gang
from jobs.engines.local.heartbeat import Activity, observe
from jobs.engines.local.launchers import GangRequest, are_gpus_shared
from jobs.engines.local.rendezvous import Rendezvous
from jobs.engines.local.wakeup import Interrupted, Wakeup
from jobs.host.gpus import VISIBLE, count_gpus, visible_gpus
from jobs.host.processes import MARK
from jobs.runs.checkpoints import has_files, whole_checkpoints
from jobs.runs.failure import (
    HANG_EXIT_CODE,
    LONGEST_MESSAGE,
    PREEMPTED_EXIT_CODE,
    hang_error,
    is_conclusive,
    is_leaving,
    root_cause,
    stalled_error,
    summary_line,
    why_it_left,
)
from jobs.runs.hanging import is_in_collective, name_hanging
from jobs.runs.supervision import Handover

# Between asking a rank to end and killing it. A rank of a healthy gang has time to write a
# checkpoint; once one has died, the others cannot finish a step together any more.
CHECKPOINT_GRACE_S = 10.0
GRACE_S = 4.0
SERVER_GRACE_S = 2.0  # for what served the others, once they are over
STACKS_S = 2.0  # for the ranks of a hanging gang to write their stacks
# For the guilty rank to end, when the first to end blames a peer: on a busy machine a framework
# takes seconds to leave. With the grace it stays within the 10 s in which the others must be gone.
SETTLE_S = 2.5
LAST_BYTES = 64 << 10  # of what mpirun wrote
_MOST_TOLD = 3  # ranks whose logs are not whole


class Outcome(Struct, frozen=True, kw_only=True):
    """The end of a run."""

    state: RunState
    reason: str | None = None
    exit_code: int | None = None
    error: RankError | None = None


class AttemptRunner:
    """Runs one gang, from the start of its ranks until no process of it is left."""

    def __init__(
        self,
        run_dir: Path,
        spec: JobSpec,
        request: GangRequest,
        gang: Gang,
        wakeup: Wakeup,
        *,
        containers: Containers | None = None,
    ) -> None:
        self._run_dir = run_dir
        self._spec = spec
        self._request = request
        self._gang = gang
        self._wakeup = wakeup
        self._containers = containers

    def run(self, handover: Handover, *, limit_s: float, on_start: Callable[[], None]) -> Outcome:
        """Start the ranks and see them to their end; raises Interrupted, and leaves them running.

        `limit_s` is when the run has to be over, on the monotonic clock; `on_start` is called
        when all is ready.
        """
        inherited = os.environ if self._containers is None else rank_environ(os.environ)
        marked = {**inherited, MARK: str(self._run_dir)}
        gpus = visible_gpus(marked, count_gpus())
        if are_gpus_shared(gpus, self._request.capacity_nodes):
            marked.pop(VISIBLE, None)  # each rank has those of its node (preparation.py)
        base = {**marked, **self._request.env}
        rendezvous = Rendezvous(self._request, handover.interpreter, base, self._containers)
        try:
            shared = {**base, **rendezvous.environment, **handover.secrets, MARK: marked[MARK]}
            on_start()
            self._gang.start(handover.interpreter, shared, rendezvous)
            outcome = self._watch_over(limit_s)
            if outcome is None:
                # What ends from here on served the others, and is ended by us.
                stopped_s, has_failed = time.monotonic(), self._gang.has_failure
                self._gang.stop(SERVER_GRACE_S)
                outcome = self._judge(stopped_s) if has_failed else self._completed()
            return outcome
        finally:
            rendezvous.close()

    def end_early(self, interruption: Interrupted) -> Outcome:
        """End the ranks on request; healthy ones have time to write a checkpoint."""
        # Where one has died already, the others cannot.
        self._gang.reap()
        is_healthy = not self._gang.has_failure or is_leaving(self._gang.reports())
        self._gang.stop(CHECKPOINT_GRACE_S if is_healthy else GRACE_S)
        has_saved = any(each.has_left_checkpoint for each in self._gang.reports())
        reason = interruption.reason
        if has_saved and interruption.cause != "cancel":
            reason = f"{reason}; {self._newest_checkpoint()}"
            return Outcome(state=RunState.PREEMPTED, reason=reason, exit_code=PREEMPTED_EXIT_CODE)
        if interruption.cause == "watcher":
            return Outcome(state=RunState.LOST, reason=reason)
        if has_saved:
            reason = self._newest_checkpoint()
        return Outcome(state=RunState.CANCELLED, reason=reason, exit_code=ExitCode.CANCELLED)

    def give_up(self, message: str) -> Outcome:
        """End the ranks because our own part failed: the disk, the inputs, the runtime."""
        self._gang.stop(GRACE_S)
        return self._failed(self._error("cannot run", message))

    def _watch_over(self, limit_s: float) -> Outcome | None:
        """Wait until the ranks ended (None) or have to be ended."""
        activity = Activity(self._run_dir, len(self._request.ranks), self._spec.limits.hang_s)
        failed_s: float | None = None
        while True:
            self._gang.reap()
            if not self._gang.are_living:
                return None
            now_s = time.monotonic()
            settled_s = float("inf")
            if self._gang.has_failure:
                failed_s = failed_s or now_s
                reports = self._gang.reports()
                leaves = is_leaving(reports)
                # Who leaves after a checkpoint does so with all others; the one that writes it
                # is not to be disturbed.
                settled_s = failed_s + (CHECKPOINT_GRACE_S if leaves else SETTLE_S)
                if now_s >= settled_s or (not leaves and is_conclusive(reports)):
                    return self._end_failed()
            if self._gang.is_helper_lost:
                return self._end_failed()
            if now_s >= limit_s:
                return self._end_overdue(self._spec.limits.wall_clock_s or 0)
            if now_s >= activity.deadline_s and activity.is_silent():
                return self._end_hanging()
            next_s = min(limit_s, settled_s, activity.deadline_s)
            self._wakeup.wait_interruptibly(next_s - now_s)

    # --- the ways to end ---------------------------------------------------------------------

    def _completed(self) -> Outcome:
        torn = [each for each in self._gang.reports() if each.log_error]
        told = [f"rank {each.rank}: {each.log_error}" for each in torn[:_MOST_TOLD]]
        if len(torn) > _MOST_TOLD:
            told.append(f"{len(torn) - _MOST_TOLD} more ranks failed alike")
        reason = "; ".join(told) or None
        return Outcome(state=RunState.COMPLETED, reason=reason, exit_code=0)

    def _end_failed(self) -> Outcome:
        """Name the rank that failed, end the others."""
        stalled: RankError | None = None
        reports = self._gang.reports()
        if not is_conclusive(reports):
            # All blame a peer: perhaps one that did not end but stands still.
            living = [each for each in reports if each.ended_s is None]
            stopped = [sign for sign in observe(self._run_dir, living) if sign.is_stopped]
            if stopped:
                stalled = stalled_error(reports[stopped[0].rank])
        stopped_s = time.monotonic()
        self._gang.stop(GRACE_S)
        return self._judge(stopped_s, stalled)

    def _end_hanging(self) -> Outcome:
        """Find the rank that holds up the others, and have all write their stacks."""
        signs = observe(self._run_dir, self._gang.reports())
        self._gang.abort(STACKS_S)
        reports = self._gang.reports()
        signs = [
            structs.replace(sign, is_in_collective=is_in_collective(report.traceback))
            for sign, report in zip(signs, reports, strict=True)
        ]
        # To be idle and silent is what a server is for; it is named for plainer signs only.
        plain = [
            sign
            for sign, rank in zip(signs, self._request.ranks, strict=True)
            if rank.awaited or sign.is_stopped or sign.has_exited or sign.has_closed_output
        ]
        rank, why = name_hanging(plain, self._request.launcher)
        error = hang_error(reports[rank], self._spec.limits.hang_s or 0, why)
        return self._failed(error)

    def _end_overdue(self, limit_s: float) -> Outcome:
        self._gang.stop(CHECKPOINT_GRACE_S)
        reason = f"limits.wall_clock: it ran longer than {limit_s:g} s"
        return Outcome(state=RunState.FAILED, reason=reason, exit_code=HANG_EXIT_CODE)

    def _judge(self, stopped_s: float, stalled: RankError | None = None) -> Outcome:
        """Find the rank whose fault it was, once all are over."""
        reports = self._gang.reports()
        error = root_cause(reports, stopped_s=stopped_s)
        if stalled is not None and (error is None or error.cause != "out of memory"):
            error = stalled
        if error is None:
            what = "mpirun" if self._request.launcher == "mpi" else "its rendezvous"
            error = self._error(f"{what} failed", self._last_words())
        if error.exit_code == PREEMPTED_EXIT_CODE and error.rank is not None:
            reason = why_it_left(reports, reports[error.rank])
            newest = self._newest_checkpoint()
            if newest.rpartition(": ")[2] not in reason:
                reason = f"{reason}; {newest}"
            return Outcome(state=RunState.PREEMPTED, reason=reason, exit_code=error.exit_code)
        return self._failed(error)

    def _newest_checkpoint(self) -> str:
        found = whole_checkpoints(self._run_dir)
        if found:
            return f"newest checkpoint: step {found[0].step}"
        if has_files(self._run_dir):
            return "it left files in checkpoints/, and none is a manifest.json"
        return "it left no checkpoint"

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
        """Give the last line of mpirun or of torch's store."""
        with (self._run_dir / "supervisor.log").open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LAST_BYTES))
            lines = file.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:LONGEST_MESSAGE] if lines else "it left no message"
