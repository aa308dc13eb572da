"""One run directory, for whoever holds only its path: record, events, status and error.

docs/run-directory.md says who writes what. What can be read is checked before it is used.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from jobs.contracts.errors import EnvironmentFailure, NotFound
from jobs.contracts.spec import RankError, RunRecord, RunState, RunStatus
from jobs.host.untrusted import parse_json, read_json, read_small

T = TypeVar("T")
_Size = Annotated[int, Meta(ge=1, le=1_000_000)]


class RunEvent(Struct, frozen=True, kw_only=True):
    """A line of `events.jsonl`: the state that the run entered at `ts`.

    `attempt` (`ID.1`) is set where an attempt starts to run, and where it ended for another.
    """

    ts: str
    state: RunState
    reason: str | None = None
    exit_code: int | None = None
    attempt: str | None = None


class _Spec(Struct, frozen=True, kw_only=True):
    name: str
    stack: str
    cluster: str
    nodes: _Size
    processes_per_node: _Size
    experiment: str | None = None
    tags: dict[str, str] = {}


class _Plan(Struct, frozen=True, kw_only=True):
    spec: _Spec


class _RunBrief(Struct, frozen=True, kw_only=True):
    """The few fields of `run.json` that a status needs; the rest is skipped, not parsed."""

    id: str
    created: str
    plan: _Plan


def read_record(run_dir: Path) -> RunRecord:
    """Parse `run.json`."""
    _read_brief(run_dir)  # raises for what is no record of this very run
    return _decode(run_dir / "run.json", RunRecord)


def _read_brief(run_dir: Path) -> _RunBrief:
    """Parse what a status needs; what others go by as a name, a time or a number is one."""
    path = run_dir / "run.json"
    brief = _decode(path, _RunBrief)
    if brief.id != run_dir.name:
        raise _damaged(path, f"it is of run {brief.id!r:.40}")
    if not _is_time(brief.created):
        raise _damaged(path, f"`created` is {brief.created!r:.40}")
    return brief


def read_events(run_dir: Path) -> list[RunEvent]:
    """Parse `events.jsonl`; what is no event, as a line cut off by a full disk, is passed over."""
    try:
        lines = read_small(run_dir / "events.jsonl").split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise unreadable(run_dir, error) from error
    events: list[RunEvent] = []
    for line in lines:
        try:
            event = parse_json(line, RunEvent)
        except msgspec.DecodeError:
            continue
        if _is_time(event.ts):
            events.append(event)
    return events


def read_status(run_dir: Path) -> RunStatus:
    """Read the run's status from its record, its events and its lock."""
    brief = _read_brief(run_dir)
    events = read_events(run_dir)
    if not _is_terminal(events) and not _is_supervised(run_dir):
        events = read_events(run_dir)  # it may have ended between the two looks
        if not _is_terminal(events):
            events.append(RunEvent(ts="", state=RunState.LOST, reason="its supervisor is gone"))
    # Its first event follows its record; of a run that is being removed the record may go last.
    last = events[-1] if events else RunEvent(ts="", state=RunState.QUEUED)
    started = next((each.ts for each in events if each.state is RunState.RUNNING), None)
    spec = brief.plan.spec
    return RunStatus(
        id=brief.id,
        name=spec.name,
        state=last.state,
        reason=last.reason,
        exit_code=last.exit_code,
        stack=spec.stack,
        cluster=spec.cluster,
        nodes=spec.nodes,
        world_size=spec.nodes * spec.processes_per_node,
        created=brief.created,
        started=started,
        ended=(last.ts or None) if last.state.is_terminal() else None,
        run_dir=str(run_dir),
        experiment=spec.experiment or spec.name,
        tags=spec.tags,
    )


def is_over(run_dir: Path) -> bool:
    """Tell whether the run has ended; cheaper than its status."""
    if _is_terminal(read_events(run_dir)):
        return True
    return not _is_supervised(run_dir)


def read_error(run_dir: Path) -> RankError | None:
    """Parse `error.json` where there is one."""
    if not (run_dir / "error.json").exists():
        return None
    return _decode(run_dir / "error.json", RankError)


def append_event(run_dir: Path, event: RunEvent) -> None:
    """Add one line to `events.jsonl` in a single write, on disk before this returns."""
    line = msgspec.json.encode(event) + b"\n"
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(run_dir / "events.jsonl", flags, 0o644)
    try:
        written = os.write(descriptor, line)
        if written != len(line):
            raise OSError(28, "no space left for an event", str(run_dir / "events.jsonl"))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_terminal(events: list[RunEvent]) -> bool:
    return bool(events) and events[-1].state.is_terminal()


def _is_supervised(run_dir: Path) -> bool:
    # Linux only (fcntl), so loaded only where a run of the local engine is looked at.
    from jobs.runs.supervision import is_supervised

    return is_supervised(run_dir)


def _decode(path: Path, kind: type[T]) -> T:
    try:
        return read_json(path, kind)
    except FileNotFoundError as error:
        message = f"there is no run in `{path.parent}`"
        raise NotFound(message, hint="launch ls") from error
    except OSError as error:
        raise unreadable(path, error) from error
    except msgspec.ValidationError as error:
        raise _damaged(path, str(error)) from None
    except msgspec.DecodeError as error:
        message = f"`{path}` is damaged: {error}"
        hint = f"the output of its ranks is in {path.parent}; rm -r {path.parent} removes the run"
        raise EnvironmentFailure(message, hint=hint) from None


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _damaged(path: Path, why: str) -> EnvironmentFailure:
    message = f"`{path}` has a format that this version does not know: {why:.200}"
    return EnvironmentFailure(message, hint="use the version of `launch` that wrote it")


def unreadable(path: Path, error: OSError) -> EnvironmentFailure:
    """Make the error for a file or folder that the system does not let us read."""
    message = f"cannot read `{path}`: {error.strerror or error}"
    return EnvironmentFailure(message, hint=f"ls -ld {path.parent} {path} shows who may read it")
