"""The attempts of a run, from its events."""

from __future__ import annotations

from jobs.contracts.spec import RunState
from jobs.runs.attempts import AttemptBrief, attempts_of
from jobs.runs.store import RunEvent


def event(ts: str, state: str, **more: str) -> RunEvent:
    return RunEvent(ts=ts, state=RunState(state), **more)


def test_run_that_was_preempted_twice_has_three_attempts() -> None:
    events = [
        event("0", "queued"),
        event("1", "preparing"),
        event("2", "running", attempt="r.1"),
        event("3", "preparing", reason="rank 1 left", attempt="r.1"),
        event("4", "running", attempt="r.2"),
        event("5", "preparing", reason="rank 0 left", attempt="r.2"),
        event("6", "running", attempt="r.3"),
    ]
    first, second, third = attempts_of("r", events)
    assert first == AttemptBrief(
        name="r.1", started="2", ended="3", state=RunState.PREEMPTED, reason="rank 1 left"
    )
    assert (second.started, second.ended, second.reason) == ("4", "5", "rank 0 left")
    assert third == AttemptBrief(
        name="r.3", started="6", ended=None, state=RunState.RUNNING, reason=None
    )


def test_last_attempt_ends_as_the_run_does() -> None:
    events = [event("2", "running"), event("7", "failed", reason="rank 1 on h: it fell")]
    (only,) = attempts_of("r", events)  # a run of before attempts had names
    assert only == AttemptBrief(
        name="r.1", started="2", ended="7", state=RunState.FAILED, reason="rank 1 on h: it fell"
    )


def test_run_whose_ranks_never_started_has_none() -> None:
    assert attempts_of("r", [event("0", "queued"), event("1", "cancelled")]) == []
