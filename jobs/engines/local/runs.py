"""The runs of a local stack, as verbs read them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from jobs.contracts.spec import DatasetVersion, RunHandle, RunRecord, RunState, RunStatus
from jobs.host.processes import remains
from jobs.host.structs import prepared
from jobs.runs.run_folder import is_over
from jobs.runs.store import RunStore


class _Rank(Struct, frozen=True, kw_only=True):
    rank: int
    task: tuple[str, int] | None = None


class _Gang(Struct, frozen=True, kw_only=True):
    """The part of a GangRequest that is shown, whichever version of us wrote it."""

    ranks: tuple[_Rank, ...] = ()


class LocalRuns(RunStore):
    """Runs in a folder of this machine, written by this user alone."""

    @property
    def has_own_records(self) -> bool:
        """Return True: the folder is this user's."""
        return True

    def known(self, limit: int) -> Mapping[str, str]:
        """Give the ids of the newest runs with state and name, and `last`."""
        found = self.list(limit)
        choices = {run.id: f"{run.state.value} {run.name}" for run in found}
        if found:
            choices["last"] = f"{choices[found[0].id]} ({found[0].id})"
        return choices

    def status(self, handle: RunHandle) -> RunStatus:
        """Say where the run stands; never raises for a run whose folder was deleted."""
        if not has_record(Path(handle.run_dir)):
            return _status_without_record(handle)
        return super().status(handle)

    def reader_of(self, dataset: DatasetVersion) -> str | None:
        """Name a run that is not over and reads a version's content."""
        return next(self.readers_of(dataset, is_left_out=is_over), None)

    def tasks(self, record: RunRecord) -> Mapping[int, str]:
        """Name each rank's task in TensorFlow's cluster; empty under another launcher."""
        gang = msgspec.json.decode(record.plan.request, type=prepared(_Gang))
        return {each.rank: f"{each.task[0]} {each.task[1]}" for each in gang.ranks if each.task}


def has_record(run_dir: Path) -> bool:
    """Tell whether a run's folder holds its record."""
    return os.path.lexists(run_dir / "run.json")


def _status_without_record(handle: RunHandle) -> RunStatus:
    """Say of a run whose folder was deleted whether processes of it live; no more is known."""
    return RunStatus(
        id=handle.id,
        name="",
        state=RunState.RUNNING if remains(Path(handle.run_dir)) else RunState.LOST,
        reason="its folder was deleted",
        exit_code=None,
        stack="",
        cluster="",
        nodes=0,
        world_size=0,
        created="",
        started=None,
        ended=None,
        run_dir=handle.run_dir,
    )
