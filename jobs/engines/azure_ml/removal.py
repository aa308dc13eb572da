"""Remove a run's job, blobs and folder; what is cut off is gone on with.

The folder of this machine is renamed first: that name tells the next command what is not done yet.
The run's record goes from the store last, as the run is found by it. Azure ML deletes no job: it is
archived, which hides it in lists, and its own logs stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.contracts.errors import EnvironmentFailure, LaunchError, Refused, Unreached
from jobs.contracts.spec import RunHandle, RunRecord
from jobs.engines.azure_ml.cancel import may_go_on
from jobs.engines.azure_ml.intents import GIVEN_UP, SUBMITTED
from jobs.engines.azure_ml.names import checkpoints_prefix, job_name
from jobs.engines.azure_ml.states import mapping
from jobs.host.disk import delete, put_away
from jobs.host.parallel import parallel
from jobs.host.private import make_folder
from jobs.runs.removal import KEPT, not_over, removal_cut_off, removed_folder

if TYPE_CHECKING:
    from jobs.blobs.store import Blob
    from jobs.engines.azure_ml.runs import CloudRuns

_NUM_AT_ONCE = 50
# Azure ML tells them of a job, and takes them back from nobody.
_READ_ONLY = ("status", "services", "parentJobName", "provisioningState")


class CloudRemoval:
    """Removal of a workspace's runs; see `Removal`."""

    def __init__(self, runs: CloudRuns) -> None:
        self.runs = runs

    def started_here(self) -> list[str]:
        """List the ids of the runs whose submission this machine has ended, newest first."""
        folder = self.runs.runs
        return [
            each
            for each in self.runs.names()
            if any((folder / each / mark).exists() for mark in (SUBMITTED, GIVEN_UP))
        ]

    def records(self, after: str, damaged: list[LaunchError]) -> Iterator[RunRecord]:
        """Yield the records of the workspace's newer runs; those on their way come last."""
        newer: dict[str, None] = {}
        for each in self.runs.listed():
            if each.run > after:
                newer[each.run] = None
            elif each.attempt == 1:
                break  # a later attempt is listed by its own time
        on_their_way = filter(self.runs.is_meant, self.runs.names())
        newer |= dict.fromkeys(each for each in on_their_way if each > after)
        names = iter(newer)
        while batch := list(islice(names, _NUM_AT_ONCE)):
            for found in parallel(self._record_or_error, batch):
                if isinstance(found, LaunchError):
                    damaged.append(found)
                else:
                    yield found

    def is_kept(self, handle: RunHandle) -> bool:
        """Tell whether the store holds the run's mark."""
        return self.runs.blobs.read(_mark(handle)) is not None

    def keep(self, handle: RunHandle, *, is_kept: bool) -> None:
        """Put the mark into the store, where every machine finds it, or take it away."""
        if is_kept:
            self.runs.blobs.create(_mark(handle), b"")
        else:
            self.runs.blobs.delete([_mark(handle)])

    def size(self, handles: Sequence[RunHandle]) -> int:
        """Count the bytes of the runs' blobs."""
        return sum(blob.bytes for each in handles for blob in self._blobs(each.id))

    def cut_off(self) -> list[RunHandle]:
        """List the runs whose removal from this machine was cut off."""
        return [self.runs.handle(each) for each in removal_cut_off(self.runs.runs)]

    def remove(self, handle: RunHandle) -> None:
        """Archive the run's jobs, delete its blobs and its folder."""
        runs, run_dir = self.runs, Path(handle.run_dir)
        gone = removed_folder(run_dir)
        if gone.exists():
            delete(run_dir)  # brought anew since the removal was cut off
        else:
            if not runs.status(handle).state.is_terminal() or may_go_on(runs, handle):
                message = f"{handle.id} is not over, or may be started again"
                raise Refused(message, hint=not_over(handle.id).hint)
            put_away(run_dir)
            make_folder(gone)  # of a run whose folder this machine has not got
        self.hide_jobs(handle.id)
        record = f"{handle.id}/run.json"
        names = (each.name for each in self._blobs(handle.id))
        runs.blobs.delete(each for each in names if each != record)
        runs.blobs.delete([record])
        delete(gone)
        runs.forget(handle)

    def hide_jobs(self, run: str) -> None:
        """Archive the job of each attempt; raises EnvironmentFailure."""
        client = self.runs.client
        try:
            for number in count(1):
                path = f"{client.workspace}/jobs/{job_name(run, number)}"
                job = client.find(path, what=f"looking up the jobs of {run}")
                if job is None:
                    return
                if not job["properties"].get("isArchived"):
                    client.put(path, archived_body(job), what=f"archiving {run}")
        except EnvironmentFailure as error:
            message = f"{run} is not removed: {error.message}"
            raise EnvironmentFailure(message, hint=f"{error.hint}; then launch rm {run}") from error

    def _blobs(self, run: str) -> Iterator[Blob]:
        yield from list(self.runs.blobs.list(f"{run}/"))
        yield from list(self.runs.blobs.list(checkpoints_prefix(run)))

    def _record_or_error(self, run: str) -> RunRecord | LaunchError:
        try:
            return self.runs.record(self.runs.handle(run))
        except Unreached:
            raise
        except LaunchError as error:
            return error


def archived_body(job: Mapping[str, Any]) -> dict[str, Any]:
    """Make the body that archives a job out of the one that Azure ML shows (pure)."""
    shown = {key: each for key, each in job["properties"].items() if key not in _READ_ONLY}
    # Azure ML's own output, which every job has and nobody asks for.
    outputs = {key: each for key, each in mapping(shown.get("outputs")).items() if key != "default"}
    return {"properties": {**shown, "outputs": outputs, "isArchived": True}}


def _mark(handle: RunHandle) -> str:
    return f"{handle.id}/{KEPT}"
