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
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

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
from jobs.runs.run_folder import (
    RunEvent,
    append_event,
    read_error,
    read_events,
    read_record,
    read_status,
    unreadable,
)

if TYPE_CHECKING:
    from jobs.runs.checkpoints import Checkpoint
    from jobs.runs.progress import Progress
    from jobs.runs.selection import Selection

RUN_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-z]{4}")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


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
            raise unreadable(self.runs, error) from error
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
            raise several_runs(name, matches)
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


def several_runs(name: str, matches: Sequence[str]) -> LaunchError:
    """Make the error for a prefix that fits several runs."""
    several = ", ".join(matches[:4]) + (", ..." if len(matches) > 4 else "")
    return LaunchError(f"`{name}` fits {len(matches)} runs", hint=f"one of {several}")


def _lives(run_dir: Path) -> bool:
    # Linux only.
    from jobs.host.processes import remains

    return bool(remains(run_dir))
