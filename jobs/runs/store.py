"""The run store: one folder a run, named so that names sort by time (docs/run-directory.md).

There is no database and no index: `mkdir` is the claim of an id, `run.json` makes the run exist,
`events.jsonl` says where it stands, and a lock held by its supervisor says that somebody still
looks after it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from jobs.contracts.errors import EnvironmentFailure, LaunchError, NotFound
from jobs.contracts.spec import (
    DatasetVersion,
    Environment,
    RankError,
    RunHandle,
    RunRecord,
    RunState,
    RunStatus,
)
from jobs.host import console
from jobs.host.files import sync_folder, write_file
from jobs.host.private import make_folder
from jobs.host.untrusted import parse_json, read_json, read_small

if TYPE_CHECKING:
    from jobs.runs.checkpoints import Checkpoint
    from jobs.runs.progress import Progress
    from jobs.runs.selection import Selection

RUN_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-z]{4}")
T = TypeVar("T")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class RunEvent(Struct, frozen=True, kw_only=True):
    """A line of `events.jsonl`: the state that the run entered at `ts`.

    `attempt` (`ID.1`) is set where an attempt starts to run, and where it ended for another.
    """

    ts: str
    state: RunState
    reason: str | None = None
    exit_code: int | None = None
    attempt: str | None = None


class RunStore:
    """Runs of one workspace folder.

    Names are listed and sorted, records are read only of those asked for, so that the newest
    twenty cost the same among ten runs and among ten thousand.
    """

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.runs = workspace / "runs"

    @classmethod
    def of(cls, environment: Environment) -> RunStore:
        """Open the store of a local environment."""
        return cls(workspace_folder(environment))

    # --- reading ---------------------------------------------------------------------------

    def names(self) -> list[str]:
        """List the ids of all runs, newest first; a claimed folder that is no run yet is among them."""
        try:
            names = os.listdir(self.runs)  # noqa: PTH208 (10,000 names: strings, not Paths)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unreadable(self.runs, error) from error
        return sorted(filter(RUN_ID.fullmatch, names), reverse=True)

    def list(self, limit: int | None = 20, selection: Selection | None = None) -> list[RunStatus]:
        """Read the status of the newest `limit` runs (all when None), newest first; a damaged one is told."""
        found: list[RunStatus] = []
        damaged: list[LaunchError] = []
        for name in self.names():
            if limit is not None and len(found) >= limit:
                break
            if selection is not None and selection.is_too_old(name):
                break
            try:
                status = self.status(self.handle(name)) if self._exists(name) else None
                if status is not None and (selection is None or selection.takes(status)):
                    found.append(status)
            except NotFound:  # removed meanwhile
                continue
            except LaunchError as error:
                damaged.append(error)
        console.warn_damaged(damaged)
        return found

    def readers_of(
        self, dataset: DatasetVersion, *, is_left_out: Callable[[Path], bool] = lambda _: False
    ) -> Iterator[str]:
        """Yield the runs whose records here name a version's content, newest first; a damaged one is told."""
        wanted = dataset.name, dataset.digest
        damaged: list[LaunchError] = []
        for name in self.names():
            run_dir = self.runs / name
            try:
                if not self._exists(name) or is_left_out(run_dir):
                    continue
                inputs = read_record(run_dir).plan.spec.inputs.values()
            except NotFound:  # removed meanwhile
                continue
            except LaunchError as error:
                damaged.append(error)
                continue
            if wanted in ((each.dataset.name, each.dataset.digest) for each in inputs):
                yield name
        console.warn_damaged(damaged)

    def is_unfinished(self, name: str) -> bool:
        """Tell whether a folder is no run yet, or of one that never was."""
        return not (self._exists(name) or os.path.lexists(f"{self.runs}/{name}/logs"))

    def find(self, name: str) -> RunHandle:
        """Find the run that an id, a unique prefix of one or `last` names.

        By its id a run whose folder was deleted is found, too, while processes of it live.
        Raises NotFound where there is none, LaunchError where a prefix fits several.
        """
        if RUN_ID.fullmatch(name) and (self._exists(name) or _lives(self.runs / name)):
            return self.handle(name)
        if name == "last":
            for newest in self.names():
                if self._exists(newest):
                    return self.handle(newest)
            message = "there is no run yet"
            raise NotFound(message, hint="launch run JOB")
        matches = [each for each in self.names() if each.startswith(name) and self._exists(each)]
        if not name or not matches:
            message = f"there is no run `{name}`"
            raise NotFound(message, hint="launch ls")
        if len(matches) > 1:
            message = f"`{name}` fits {len(matches)} runs"
            several = ", ".join(matches[:4]) + (", ..." if len(matches) > 4 else "")
            raise LaunchError(message, hint=f"one of {several}")
        return self.handle(matches[0])

    def handle(self, run_id: str) -> RunHandle:
        """Make the handle of an id; does not look whether there is such a run."""
        return RunHandle(id=run_id, engine="local", run_dir=str(self.runs / run_id))

    def record(self, handle: RunHandle) -> RunRecord:
        """Read the run's record: its plan, code and environment."""
        return read_record(Path(handle.run_dir))

    def events(self, handle: RunHandle) -> list[RunEvent]:
        """Read the states that the run went through, oldest first."""
        return read_events(Path(handle.run_dir))

    def status(self, handle: RunHandle) -> RunStatus:
        """Read the run's status; `lost` if it has no supervisor."""
        return read_status(Path(handle.run_dir))

    def error(self, handle: RunHandle) -> RankError | None:
        """Read the error of the rank that failed first, or None."""
        return read_error(Path(handle.run_dir))

    def bring(self, handle: RunHandle) -> None:
        """Do nothing: a run of this machine writes into its run directory."""

    def progress(self, handle: RunHandle) -> Progress | None:
        """Read how far the run is; None where it does not tell."""
        from jobs.runs.progress import read_progress

        return read_progress(Path(handle.run_dir))

    def checkpoints(self, handle: RunHandle) -> Sequence[Checkpoint]:
        """List the whole checkpoints, newest first."""
        from jobs.runs.checkpoints import whole_checkpoints

        return whole_checkpoints(Path(handle.run_dir))

    def places(self, handle: RunHandle) -> Sequence[tuple[str, str]]:
        """List the folders of the run and its results."""
        return [("run folder", handle.run_dir), ("outputs", str(Path(handle.run_dir, "outputs")))]

    def _exists(self, name: str) -> bool:
        return os.path.lexists(f"{self.runs}/{name}/run.json")

    # --- writing ---------------------------------------------------------------------------

    def claim(self) -> RunHandle:
        """Take the next free id by making its folder. The run exists only after `commit`."""
        try:
            make_folder(self.runs)
            microseconds = time.time_ns() // 1000
            while True:
                handle = self.handle(run_id(microseconds))
                try:
                    Path(handle.run_dir).mkdir(mode=0o700)
                except FileExistsError:
                    microseconds += 1
                else:
                    return handle
        except OSError as error:
            message = f"cannot write a run in `{self.runs}`: {error.strerror or error}"
            hint = "free some space or correct the folder's permissions"
            raise EnvironmentFailure(message, hint=hint) from error

    def commit(self, record: RunRecord) -> None:
        """Make the run exist: its record and its first event, on disk before this returns."""
        run_dir = self.runs / record.id
        append_event(run_dir, RunEvent(ts=record.created, state=RunState.QUEUED))
        write_file(run_dir / "run.json", msgspec.json.format(msgspec.json.encode(record)))
        sync_folder(self.runs)


def workspace_folder(environment: Environment) -> Path:
    """Give the folder that a local environment's workspace names (`file://...`)."""
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(environment.workspace.endpoint)
    if parts.scheme != "file" or not parts.path:
        message = f"workspace endpoint `{environment.workspace.endpoint}` is not a file:// folder"
        raise EnvironmentFailure(message, hint="launch env show")
    return Path(unquote(parts.path))


def run_id(microseconds: int) -> str:
    """Make the id of a run created at that time (microseconds since 1970, UTC)."""
    seconds, rest = divmod(microseconds, 1_000_000)
    tail = ""
    for _ in range(4):
        rest, digit = divmod(rest, 36)
        tail = _DIGITS[digit] + tail
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime(seconds)) + tail


# --- One run directory, for whoever holds only its path --------------------------------------


_Size = Annotated[int, Meta(ge=1, le=1_000_000)]


class _RunBrief(Struct, frozen=True, kw_only=True):
    """The few fields of `run.json` that a status needs; the rest is skipped, not parsed."""

    class _Plan(Struct, frozen=True, kw_only=True):
        class _Spec(Struct, frozen=True, kw_only=True):
            name: str
            stack: str
            cluster: str
            nodes: _Size
            processes_per_node: _Size
            experiment: str | None = None
            tags: dict[str, str] = {}

        spec: _Spec

    id: str
    created: str
    plan: _Plan


def read_record(run_dir: Path) -> RunRecord:
    """Parse `run.json`."""
    _read_brief(run_dir)
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
        raise _unreadable(run_dir, error) from error
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


def _lives(run_dir: Path) -> bool:
    # Linux only, too.
    from jobs.host.processes import remains

    return bool(remains(run_dir))


def _decode(path: Path, kind: type[T]) -> T:
    try:
        return read_json(path, kind)
    except FileNotFoundError as error:
        message = f"there is no run in `{path.parent}`"
        raise NotFound(message, hint="launch ls") from error
    except OSError as error:
        raise _unreadable(path, error) from error
    except msgspec.DecodeError as error:
        if isinstance(error, msgspec.ValidationError):
            raise _damaged(path, str(error)) from None
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


def _unreadable(path: Path, error: OSError) -> EnvironmentFailure:
    message = f"cannot read `{path}`: {error.strerror or error}"
    return EnvironmentFailure(message, hint=f"ls -ld {path.parent} {path} shows who may read it")
