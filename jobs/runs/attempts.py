"""The attempts of a run, as its events tell of them (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from jobs.contracts.spec import RunState
from jobs.runs.store import RunEvent


class AttemptBrief(Struct, frozen=True, kw_only=True):
    """One start of the run's gang; `ended` and `reason` are None while it runs."""

    name: str
    started: str
    ended: str | None
    state: RunState
    reason: str | None


def attempts_of(run_id: str, events: Sequence[RunEvent]) -> list[AttemptBrief]:
    """All attempts, oldest first; none for a run whose ranks were never started."""
    found: list[AttemptBrief] = []
    for event, following in pairwise([*events, None]):
        if event is None or event.state is not RunState.RUNNING:
            continue
        # Another attempt follows only one that was preempted; else the run ended with it.
        state = RunState.RUNNING if following is None else following.state
        found.append(
            AttemptBrief(
                name=event.attempt or f"{run_id}.{len(found) + 1}",
                started=event.ts,
                ended=following.ts if following else None,
                state=RunState.PREEMPTED if state is RunState.PREPARING else state,
                reason=following.reason if following else None,
            )
        )
    return found
