"""Starts another attempt of a run whose nodes were taken back or failed: Azure ML seldom does.

The run keeps its id and its checkpoints. Whoever is attached to it does so; the name of the next
attempt's job is known to all, so that two terminals start one. It is capped in number (`retry.max`)
and in time: all attempts together have the job's wall-clock limit, and a run that was cancelled or
ended long ago is left as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from jobs.contracts.errors import Unreached
from jobs.contracts.spec import JobSpec, RunHandle
from jobs.engines.azure_ml.history import Attempt
from jobs.engines.azure_ml.names import job_name
from jobs.engines.azure_ml.results import is_cancelled
from jobs.host import console
from jobs.runs.outcome import parse_time

if TYPE_CHECKING:
    from jobs.engines.azure_ml.runs import CloudRuns

# What ended earlier is not begun again by whoever looks at it.
WITHIN_S = 24 * 3600.0
# With less time left nothing is begun.
LEAST_S = 60.0


class NextAttempt(Struct, frozen=True, kw_only=True):
    """An attempt that is due; `timeout_s` is what is left of the run's time, None for no limit."""

    number: int
    timeout_s: float | None


def begin_again(runs: CloudRuns, handle: RunHandle) -> bool:
    """Submit another attempt if one is due; see `Attended.begin_again`."""
    from jobs.engines.azure_ml.submission import cancel_job, submit_attempt

    record = runs.record(handle)
    attempts = runs.attempts(handle)
    due = next_attempt(record.plan.spec, attempts, datetime.now(UTC))
    if due is None or is_cancelled(runs.blobs, handle.id):
        return False
    try:
        submit_attempt(runs.environment, record, due.number, runs.client, timeout_s=due.timeout_s)
    except (KeyboardInterrupt, Unreached):
        known = f"it is unknown whether attempt {due.number} of {handle.id} is on"
        console.warn(f"{known}; launch cancel {handle.id} ends it")
        runs.statuses.expect(handle, attempts)
        raise
    runs.statuses.forget(handle)
    if is_cancelled(runs.blobs, handle.id):
        # Meanwhile, by somebody who could not see this attempt.
        cancel_job(runs.client, job_name(handle.id, due.number))
    most = record.plan.spec.retry.max + 1
    reason = attempts[-1].standing.reason
    console.say(f"{reason}; attempt {due.number} of at most {most} is submitted")
    return True


def next_attempt(spec: JobSpec, attempts: Sequence[Attempt], now: datetime) -> NextAttempt | None:
    """Decide which attempt is to follow these; None if none is.

    The same whoever asks: only Azure ML's times count, but for whether it is too late.
    """
    last = attempts[-1]
    if not last.standing.state.is_terminal() or last.standing.cause not in spec.retry.on:
        return None
    if last.number > spec.retry.max or last.ended is None:
        return None
    if (now - parse_time(last.ended)).total_seconds() > WITHIN_S:
        return None
    number, limit_s = last.number + 1, spec.limits.wall_clock_s
    if limit_s is None:
        return NextAttempt(number=number, timeout_s=None)
    left_s = limit_s - sum(map(_run_time_s, attempts))
    left_s -= left_s % LEAST_S
    return NextAttempt(number=number, timeout_s=left_s) if left_s >= LEAST_S else None


def _run_time_s(attempt: Attempt) -> float:
    if attempt.started is None or attempt.ended is None:
        return 0.0
    return (parse_time(attempt.ended) - parse_time(attempt.started)).total_seconds()
