"""Starts another attempt of a run whose nodes were taken back or failed: Azure ML seldom does.

The run keeps its id and its checkpoints. Whoever is attached to it does so; the name of the next
attempt's job is known to all, so that two terminals start one. It is capped in number (`retry.max`)
and in time: all attempts together have the job's wall-clock limit, and a run that ended long ago is
left as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec.structs import replace

from jobs import console
from jobs.azure_ml.history import Attempt
from jobs.outcome import parse_time
from jobs.spec import JobSpec, RunHandle

if TYPE_CHECKING:
    from jobs.azure_ml.runs import CloudRuns

# What ended earlier is not begun again by whoever looks at it.
WITHIN_S = 24 * 3600.0
# With less time left nothing is begun.
LEAST_S = 60.0


def begin_again(runs: CloudRuns, handle: RunHandle) -> bool:
    """See Attended.begin_again."""
    from jobs.azure_ml.submission import submit_attempt

    record = runs.record(handle)
    attempts = runs.attempts(handle)
    next_spec = next_attempt(record.plan.spec, attempts, datetime.now(UTC))
    if next_spec is None:
        return False
    number = attempts[-1].number + 1
    plan = replace(record.plan, spec=next_spec)
    submit_attempt(runs.environment, replace(record, plan=plan), number, runs.wire)
    runs.watch.forget(handle)
    total = next_spec.retry.max + 1
    console.say(f"{attempts[-1].standing.reason}; attempt {number} of at most {total} is submitted")
    return True


def next_attempt(spec: JobSpec, attempts: Sequence[Attempt], now: datetime) -> JobSpec | None:
    """The job for another attempt, with the time that is left of its limit; None where none is due.

    The same whoever asks: only Azure ML's times count, but for whether it is too late.
    """
    last = attempts[-1]
    standing = last.standing
    if not standing.state.is_terminal() or standing.cause not in spec.retry.on:
        return None
    if last.number > spec.retry.max or last.ended is None:
        return None
    if (now - parse_time(last.ended)).total_seconds() > WITHIN_S:
        return None
    limit_s = spec.limits.wall_clock_s
    if limit_s is None:
        return spec
    left_s = limit_s - sum(map(_run_time_s, attempts))
    left_s -= left_s % LEAST_S  # the same for all that ask
    if left_s < LEAST_S:
        return None
    return replace(spec, limits=replace(spec.limits, wall_clock_s=left_s))


def _run_time_s(attempt: Attempt) -> float:
    if attempt.started is None or attempt.ended is None:
        return 0.0
    return (parse_time(attempt.ended) - parse_time(attempt.started)).total_seconds()
