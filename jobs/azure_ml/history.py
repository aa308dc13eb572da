"""What Azure ML's answers say of a run: of its attempts, and of the runs of a list (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from jobs.azure_ml.request import run_of_job
from jobs.azure_ml.states import Standing, judge
from jobs.runs import RUN_ID, RunEvent
from jobs.spec import RunState, RunStatus

# The names of our jobs.
_OURS = re.compile(rf"{RUN_ID.pattern}(_\d+)?")


class Attempt(Struct, frozen=True, kw_only=True):
    """One job of a run: `status` is Azure ML's word, times are ours."""

    number: int
    status: str
    standing: Standing
    started: str | None = None
    ended: str | None = None


def attempt_of(number: int, details: Mapping[str, Any]) -> Attempt:
    """An attempt, from the run's details in the run history."""
    warnings = [str(each.get("message") or "") for each in details.get("warnings") or ()]
    status = str(details.get("status") or "")
    return Attempt(
        number=number,
        status=status,
        standing=judge(status, error=details.get("error"), warnings=tuple(warnings)),
        started=our_time(details.get("startTimeUtc")),
        ended=our_time(details.get("endTimeUtc")),
    )


def our_time(text: str | None) -> str | None:
    """A time of Azure as runs carry it: ISO 8601, UTC, microseconds."""
    if not text:
        return None
    when = datetime.fromisoformat(text)
    when = when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
    return when.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def created_of(run_id: str) -> str:
    """When a run was made: its id says it."""
    micros = int(run_id[16:], 36)
    when = datetime.strptime(run_id[:15], "%Y%m%d-%H%M%S")  # noqa: DTZ007 (UTC, and said so)
    return f"{when:%Y-%m-%dT%H:%M:%S}.{micros:06d}Z"


def events_of(created: str, attempts: Sequence[Attempt], run_id: str) -> list[RunEvent]:
    """The states that a run went through, as `events.jsonl` has them."""
    events = [RunEvent(ts=created, state=RunState.QUEUED)]
    for attempt in attempts:
        standing = attempt.standing
        name = f"{run_id}.{attempt.number}"
        if attempt.started is not None:
            events.append(RunEvent(ts=attempt.started, state=RunState.RUNNING, attempt=name))
        if not standing.state.is_terminal():
            continue
        is_last = attempt is attempts[-1]
        events.append(
            RunEvent(
                ts=attempt.ended or "",
                # Another one follows, as where a supervisor tells of it.
                state=standing.state if is_last else RunState.PREPARING,
                reason=standing.reason,
                exit_code=standing.exit_code,
                attempt=None if is_last else name,
            )
        )
    return events


class Listed(Struct, frozen=True, kw_only=True):
    """A run in a list of jobs: what it is, and how its newest attempt stands."""

    run: str
    attempt: int
    standing: Standing
    name: str
    stack: str
    cluster: str
    nodes: int
    processes_per_node: int


def listed_runs(jobs: Iterable[Mapping[str, Any]]) -> Iterable[Listed]:
    """Yield the runs that jobs, newest first, belong to; each once.

    That is how a workspace lists its jobs; no reference promises it.
    """
    seen: set[str] = set()
    for job in jobs:
        listed = _listed(job)
        if listed is not None and listed.run not in seen:
            seen.add(listed.run)
            yield listed


def status_of(listed: Listed, run_dir: str, attempt: Attempt | None = None) -> RunStatus:
    """How a listed run stands; `attempt` has what the list does not tell: times, reason."""
    standing = attempt.standing if attempt is not None else listed.standing
    return RunStatus(
        id=listed.run,
        name=listed.name,
        state=standing.state,
        reason=standing.reason,
        exit_code=_exit_code(standing),
        stack=listed.stack,
        cluster=listed.cluster,
        nodes=listed.nodes,
        world_size=listed.nodes * listed.processes_per_node,
        created=created_of(listed.run),
        started=attempt.started if attempt is not None else None,
        ended=attempt.ended if attempt is not None else None,
        run_dir=run_dir,
    )


def _listed(job: Mapping[str, Any]) -> Listed | None:
    if _OURS.fullmatch(str(job["name"])) is None:
        return None  # whatever its tag says
    run, attempt = run_of_job(str(job["name"]))
    body: Mapping[str, Any] = job["properties"]
    told: Mapping[str, str] = body.get("properties") or {}
    resources: Mapping[str, int] = body.get("resources") or {}
    standing = judge(str(body.get("status") or ""))
    if standing.state is RunState.FAILED:
        # A list tells no reasons.
        standing = replace(standing, reason=None, cause=None)
    return Listed(
        run=run,
        attempt=attempt,
        standing=standing,
        name=str(body.get("displayName") or run),
        stack=told.get("trainyard.stack", ""),
        cluster=told.get("trainyard.cluster", ""),
        nodes=resources.get("instanceCount") or 1,
        processes_per_node=int(told.get("trainyard.processes_per_node", "1")),
    )


def _exit_code(standing: Standing) -> int | None:
    return 0 if standing.state is RunState.COMPLETED else standing.exit_code
