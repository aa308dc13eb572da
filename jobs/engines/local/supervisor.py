"""Supervises one run on this machine: queue, preparation, attempts, its end.

    python -m jobs.engines.local.supervisor RUN_DIR LOCK_FD      with a Handover in memory as the standard input

Forks at once: the parent becomes the watcher (jobs.engines.local.watcher), the child supervises. Each wait is
for a signal (a rank ended, somebody pokes) or for the next deadline; nothing is polled.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path

import msgspec

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import RunRecord, RunState
from jobs.engines.local.attempt import AttemptRunner, Outcome
from jobs.engines.local.containers import Containers
from jobs.engines.local.gang import Gang
from jobs.engines.local.launchers import read_request
from jobs.engines.local.preparation import keep_programs, prepare
from jobs.engines.local.queue import Slots
from jobs.engines.local.wakeup import Interrupted, Wakeup
from jobs.engines.local.watcher import become_subreaper, end_with_parent, watch
from jobs.host.files import use_reserve, write_file
from jobs.host.structs import prepared
from jobs.host.units import now
from jobs.runs import supervision
from jobs.runs.run_folder import RunEvent, append_event, read_record
from jobs.runs.signatures import forget_signatures
from jobs.runs.supervision import Handover

QUEUE_RECHECK_S = 1.0  # a claim whose holder and watcher were both killed pokes nobody


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
        self._request = read_request(record.plan)
        self._handover = handover
        self._wakeup = wakeup
        self._slots = Slots(run_dir.parent.parent, self._request.compute)
        self._attempt = self._new_attempt()

    def run(self) -> None:
        """Take the run to its end; there is exactly one last event, and then no process is left."""
        try:
            keep_programs(self._run_dir, self._spec)
            self._prepare(self._wait_for_nodes())
            outcome = self._run_attempts()
        except Interrupted as interruption:
            outcome = self._attempt.end_early(interruption)
        except LaunchError as error:
            hint = f" ({error.hint})" if error.hint else ""
            outcome = self._attempt.give_up(error.message + hint)
        except (OSError, ValueError) as error:  # a NUL, or what the system's encoding has not
            outcome = self._attempt.give_up(str(error))
        try:
            self._tell(outcome)
        except FileNotFoundError:
            pass  # its folder was deleted, and with it the place to tell
        finally:
            # Last, so that by the events, too, the next run starts after this one's end.
            self._slots.release(self._run_dir)

    def _tell(self, outcome: Outcome) -> None:
        use_reserve(self._run_dir)
        forget_signatures(self._run_dir)
        if outcome.error is not None:
            with contextlib.suppress(OSError):  # the event says the main thing, too
                write_file(self._run_dir / "error.json", msgspec.json.encode(outcome.error))
        self._enter(outcome.state, outcome.reason, exit_code=outcome.exit_code)

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
            handover=self._handover,
            nodes=nodes,
            wait=self._wakeup.wait_interruptibly,
        )

    def _run_attempts(self) -> Outcome:
        """Run the gang, and once more each time that it was preempted and the job wants that."""
        retry = self._spec.retry
        num_retries = retry.max if "preemption" in retry.on else 0
        wall_clock_s = self._spec.limits.wall_clock_s
        limit_s = time.monotonic() + wall_clock_s if wall_clock_s else float("inf")
        number = 1
        while True:
            name = f"{self._run_dir.name}.{number}"

            def enter(attempt: str = name) -> None:
                self._enter(RunState.RUNNING, attempt=attempt)

            outcome = self._attempt.run(self._handover, limit_s=limit_s, on_start=enter)
            if outcome.state is not RunState.PREEMPTED or number > num_retries:
                return outcome
            # Somebody who asked for the end meanwhile gets it.
            self._wakeup.check()
            self._enter(RunState.PREPARING, outcome.reason, attempt=name)
            self._put_away(number)
            self._attempt = self._new_attempt()
            number += 1

    def _new_attempt(self) -> AttemptRunner:
        container, program = self._request.container, self._handover.containers
        containers = (
            Containers(self._run_dir, container, program) if container and program else None
        )
        run_dir, request, wakeup = self._run_dir, self._request, self._wakeup
        gang = Gang(run_dir, request, wait=wakeup.wait, containers=containers)
        return AttemptRunner(run_dir, self._spec, request, gang, wakeup, containers=containers)

    def _put_away(self, number: int) -> None:
        """Move aside how the ranks of an attempt ended; their logs go on in the next one."""
        kept = self._run_dir / "attempts" / str(number)
        kept.parent.mkdir(exist_ok=True)
        (self._run_dir / "ranks").rename(kept)
        (self._run_dir / "ranks").mkdir()

    def _enter(
        self,
        state: RunState,
        reason: str | None = None,
        *,
        exit_code: int | None = None,
        attempt: str | None = None,
    ) -> None:
        event = RunEvent(ts=now(), state=state, reason=reason, exit_code=exit_code, attempt=attempt)
        append_event(self._run_dir, event)


def main() -> int:
    """Become the watcher, and in a child the supervisor, of the run that the arguments name."""
    run_dir, lock = Path(sys.argv[1]), int(sys.argv[2])
    # It was for this process; the ranks would find our packages before their own.
    os.environ.pop("PYTHONPATH", None)
    become_subreaper()
    os.chdir(run_dir)
    os.set_inheritable(lock, False)
    # Before anything of the job runs, which may write to it.
    record = read_record(run_dir)
    watcher = os.getpid()
    supervisor = os.fork()
    if supervisor:
        return watch(run_dir, supervisor, read_request(record.plan).compute)
    wakeup = Wakeup(run_dir, watcher)
    end_with_parent(watcher)
    # Too, so that orphans are still below it when the watcher was killed.
    become_subreaper()
    supervision.announce(lock)
    handover = msgspec.json.decode(sys.stdin.buffer.read(), type=prepared(Handover))
    os.ftruncate(sys.stdin.fileno(), 0)  # the secrets need to be nowhere but here
    Supervisor(run_dir, record, handover, wakeup).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
