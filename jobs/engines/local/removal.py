"""Removes the folders of a local stack's runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from jobs.contracts.errors import LaunchError, NotFound, Refused
from jobs.contracts.spec import RunHandle, RunRecord
from jobs.host.disk import delete, num_freed, put_away
from jobs.host.owners import foreign_owner
from jobs.host.processes import remains
from jobs.runs import supervision
from jobs.runs.removal import KEPT, not_over, removal_cut_off, removed_folder
from jobs.runs.store import RunStore


class LocalRemoval:
    """Removal of the runs of one workspace folder; see `Removal`."""

    def __init__(self, store: RunStore) -> None:
        self._store = store

    def started_here(self) -> Sequence[str]:
        """List the ids of all runs, newest first."""
        runs = self._store.runs
        return [each for each in self._store.names() if os.path.lexists(runs / each / "run.json")]

    def records(self, after: str, damaged: list[LaunchError]) -> Iterator[RunRecord]:
        """Yield the records of the runs that are newer than an id."""
        for name in self._store.names():
            if name <= after:
                break
            try:
                yield self._store.record(self._store.handle(name))
            except NotFound:  # removed meanwhile, or no run yet
                continue
            except LaunchError as error:
                damaged.append(error)

    def is_kept(self, handle: RunHandle) -> bool:
        """Tell whether the run's folder holds the mark."""
        return os.path.lexists(Path(handle.run_dir, KEPT))

    def keep(self, handle: RunHandle, *, is_kept: bool) -> None:
        """Put the mark into the run's folder, or take it away."""
        mark = Path(handle.run_dir, KEPT)
        if is_kept:
            mark.touch()
        else:
            mark.unlink(missing_ok=True)

    def size(self, handles: Sequence[RunHandle]) -> int:
        """Count the bytes of the runs' folders that no run beside them has."""
        folders = [Path(each.run_dir) for each in handles]
        return num_freed([*folders, *map(removed_folder, folders)])

    def cut_off(self) -> Sequence[RunHandle]:
        """List the runs whose folder was renamed and is still there."""
        return [self._store.handle(each) for each in removal_cut_off(self._store.runs)]

    def remove(self, handle: RunHandle) -> None:
        """Remove the folder of a run that has neither supervisor nor processes."""
        run_dir = Path(handle.run_dir)
        if owner := foreign_owner(run_dir):
            message = f"{run_dir} belongs to {owner}"
            raise Refused(message, hint=f"ask {owner.partition(' ')[0]} to remove it")
        if run_dir.exists():
            lock = supervision.try_lock(run_dir)
            if lock is None:
                raise not_over(handle.id)
            try:
                if remains(run_dir):
                    raise not_over(handle.id)
                put_away(run_dir)
            finally:
                os.close(lock)
        delete(removed_folder(run_dir))
