"""Read a run's attempts, and the runs of a list, out of Azure ML's answers (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from jobs.contracts.spec import RunState, RunStatus
from jobs.engines.azure_ml.names import MARK, run_of_job
from jobs.engines.azure_ml.states import Standing, items, judge, mapping, text_in
from jobs.host.structs import prepared
from jobs.host.units import utc_text
from jobs.runs.run_folder import RunEvent
from jobs.runs.store import RUN_ID

# The names of our jobs: a first attempt has no number.
_OURS = re.compile(rf"{RUN_ID.pattern}(_([2-9]|[1-9][0-9]{{1,3}}))?")
_PROCESSES = re.compile(r"[1-9][0-9]{0,5}")
_SECOND = 1_000_000  # microseconds


class Attempt(Struct, frozen=True, kw_only=True):
    """One job of a run: `status` is Azure ML's word, times are ours."""

    number: int
    status: str
    standing: Standing
    started: str | None = None
    ended: str | None = None


def attempt_of(number: int, details: Mapping[str, Any]) -> Attempt:
    """Read an attempt from the run's details in the run history; leaves out what is odd in them."""
    warnings = [text_in(mapping(each), "message") for each in items(details.get("warnings"))]
    status = text_in(details, "status")
    return Attempt(
        number=number,
        status=status,
        standing=judge(status, error=details.get("error"), warnings=tuple(warnings)),
        started=our_time(details.get("startTimeUtc")),
        ended=our_time(details.get("endTimeUtc")),
    )


def our_time(text: Any) -> str | None:
    """Convert a time of Azure to ISO 8601, UTC, microseconds; None for an invalid one."""
    try:
        when = datetime.fromisoformat(text)
        when = when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        return None
    # The year 1 is .NET's word for none.
    return utc_text(when) if when.year >= 1970 else None


def created_of(run_id: str) -> str:
    """Read the time of creation from a run's id; raises ValueError for an invalid id."""
    micros = int(run_id[16:], 36)
    if micros >= _SECOND:
        raise ValueError(run_id)
    when = datetime.strptime(run_id[:15], "%Y%m%d-%H%M%S")  # noqa: DTZ007 (UTC, and said so)
    return f"{when:%Y-%m-%dT%H:%M:%S}.{micros:06d}Z"


def is_run(name: str) -> bool:
    """Tell whether a name is a run's id: shaped so, and a time."""
    try:
        return RUN_ID.fullmatch(name) is not None and bool(created_of(name))
    except ValueError:
        return False


def events_of(created: str, attempts: Sequence[Attempt], run_id: str) -> list[RunEvent]:
    """Make the events of a run, as `events.jsonl` has them."""
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
    """A run in a list of jobs, with the state of its newest attempt."""

    run: str
    attempt: int
    standing: Standing
    name: str
    stack: str
    cluster: str
    nodes: int
    processes_per_node: int
    experiment: str
    tags: dict[str, str]


def listed_runs(jobs: Iterable[Any]) -> Iterable[Listed]:
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
    """Make the status of a listed run; `attempt` has times and reason, which the list lacks."""
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
        experiment=listed.experiment,
        tags=listed.tags,
    )


class _Resources(Struct, frozen=True, kw_only=True, rename="camel"):
    instance_count: int | None = None


class _Body(Struct, frozen=True, kw_only=True, rename="camel"):
    status: str | None = None
    display_name: str | None = None
    experiment_name: str | None = None
    tags: dict[str, str | None] | None = None
    properties: dict[str, str | None] | None = None
    resources: _Resources | None = None


class _Job(Struct, frozen=True, kw_only=True):
    """Fields that are read of a job in a list."""

    name: str
    properties: _Body


def _listed(row: Any) -> Listed | None:
    """Read the run that a job is of; None for others' jobs, also under a name like ours."""
    try:
        job = msgspec.convert(row, type=prepared(_Job))
    except msgspec.ValidationError:
        return None
    if _OURS.fullmatch(job.name) is None:
        return None  # whatever its tag says
    run, attempt = run_of_job(job.name)
    body, told = job.properties, job.properties.properties or {}
    per_node = _PROCESSES.fullmatch(told.get("trainyard.processes_per_node") or "1")
    if not is_run(run) or per_node is None:
        return None
    if body.tags is not None and MARK[0] not in body.tags:
        return None  # listed by another tag
    standing = judge(body.status or "")
    if standing.state is RunState.FAILED:
        # A list tells no reasons.
        standing = replace(standing, reason=None, cause=None)
    nodes = body.resources.instance_count if body.resources else None
    name = body.display_name or run
    return Listed(
        run=run,
        attempt=attempt,
        standing=standing,
        name=name,
        stack=told.get("trainyard.stack") or "",
        cluster=told.get("trainyard.cluster") or "",
        nodes=max(nodes or 1, 1),
        processes_per_node=int(per_node[0]),
        experiment=body.experiment_name or name,
        tags={key: each or "" for key, each in (body.tags or {}).items() if key != MARK[0]},
    )


def _exit_code(standing: Standing) -> int | None:
    return 0 if standing.state is RunState.COMPLETED else standing.exit_code
