"""Look ahead for a run that is on: progress, time left, cost so far and at its end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from jobs.contracts.spec import Environment, RunState, RunStatus
from jobs.runs.outcome import AttemptBrief
from jobs.runs.outlook import Outlook, outlook, progress_text
from jobs.stacks.cost import Spent, money_text, spent

if TYPE_CHECKING:
    from jobs.engines.base import Runs
    from jobs.runs.progress import Progress


class Ahead(Struct, frozen=True, kw_only=True):
    """Outlook and cost of a run; None where it tells no progress, or is free."""

    progress: Outlook | None
    cost: Spent | None


def look_ahead(
    status: RunStatus,
    progress: Progress | None,
    environment: Environment,
    attempts: Sequence[AttemptBrief] | None = None,
) -> Ahead:
    """Compute what is left of a run; without `attempts` as if it had run from its start."""
    is_on = status.state is RunState.RUNNING
    view = outlook(progress, now_s=time.time(), is_on=is_on) if progress is not None else None
    left_s = view.left_s if view is not None else None
    ran = _since_start(status) if attempts is None else attempts
    return Ahead(progress=view, cost=spent(status, ran, environment, left_s=left_s))


def look_at(store: Runs, status: RunStatus, environment: Environment) -> Ahead:
    """Look ahead for one of many runs; raises LaunchError where its progress cannot be asked for."""
    progress = store.progress(store.handle(status.id))
    return look_ahead(status, progress, environment)


def ahead_text(ahead: Ahead) -> str:
    """Write progress, time left and cost in a line; empty where the run tells none of them."""
    parts = [progress_text(ahead.progress)] if ahead.progress is not None else []
    if ahead.cost is not None:
        parts.append(cost_text(ahead.cost))
    return ", ".join(parts)


def progress_fields(status: RunStatus, ahead: Ahead) -> list[tuple[str, str]]:
    """Word a run's progress; of one that is over only where its total is known."""
    view = ahead.progress
    if view is None or (view.total is None and status.state.is_terminal()):
        return []
    return [("progress", progress_text(view))]


def cost_text(cost: Spent) -> str:
    """Write the cost so far, and of how much at the end: `0.42 of 1.30 USD`."""
    if cost.at_end is None:
        return money_text(cost.amount, cost.currency)
    return f"{money_text(cost.amount, None)} of {money_text(cost.at_end, cost.currency)}"


def _since_start(status: RunStatus) -> list[AttemptBrief]:
    if status.started is None:
        return []
    return [
        AttemptBrief(
            name=status.id,
            started=status.started,
            ended=status.ended,
            state=status.state,
            reason=status.reason,
        )
    ]
