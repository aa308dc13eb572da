"""Datasets in the environment's store: push, list, resolve, pull, and hand to a run.

docs/data.md says where things lie. A version exists from the moment its `N.json` does, which is
written last and never again; content lies under its digest, so equal content is stored once.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from jobs.blobs.store import BlobStore, open_data_store
from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import DatasetVersion, Environment
from jobs.datasets.copy import Source, copy_version
from jobs.datasets.file_list import FileList, fetch_list, work_folder
from jobs.datasets.lineage import Lineage
from jobs.datasets.making import SILENT, Pushed, Reports
from jobs.datasets.paths import disk_errors
from jobs.datasets.pull import Confirm, Pull, Pulled
from jobs.datasets.push import Push
from jobs.datasets.records import DatasetRecord, Records, require_digest
from jobs.datasets.register import register
from jobs.datasets.remove import Removal, plan_removal, remove
from jobs.host.files import finish_folder
from jobs.host.private import locked, make_folder
from jobs.host.progress import Progress, silent


class Datasets:
    """The datasets of one store."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._records = Records(store)

    @classmethod
    def of(cls, environment: Environment, *, sas_file: Path | None = None) -> Datasets:
        """Open those of an environment; starts a dead local store again."""
        return cls(open_data_store(environment, sas_file=sas_file))

    def versions(
        self, name: str | None = None, *, damaged: list[LaunchError] | None = None
    ) -> list[DatasetRecord]:
        """List the versions of one dataset, or of all; see `Records.versions`."""
        return self._records.versions(name, damaged=damaged)

    def resolve(self, ref: str) -> DatasetRecord:
        """Find `name@version`, or the newest version of `name`; raises NotFound."""
        return self._records.resolve(ref)

    def push(
        self,
        folder: Path,
        name: str,
        reports: Reports = SILENT,
        *,
        is_dry: bool = False,
        max_bytes_per_s: int | None = None,
        only: str | None = None,
        lineage: Lineage | None = None,
    ) -> Pushed:
        """Send a folder, or `only` one file in it, as a new version of `name`.

        Equal content gives the version there is.
        Safe to repeat after a kill (what was sent is not sent again) and to race: different
        contents get different versions. Raises LaunchError for a folder that cannot be sent.
        """
        push = Push(
            self._store,
            folder,
            name,
            reports=reports,
            max_bytes_per_s=max_bytes_per_s,
            only=only,
            lineage=lineage,
        )
        return push.run(is_dry=is_dry)

    def pull(
        self,
        dataset: DatasetVersion,
        folder: Path,
        progress: Progress = silent,
        *,
        mode: int = 0o644,
        is_dry: bool = False,
        delete: Confirm | None = None,
        max_bytes_per_s: int | None = None,
    ) -> Pulled:
        """Write a version's files into `folder`, with that mode.

        Files that are there and equal stay, others that are there too, unless `delete` is asked
        and agrees to take them away. Each new one is checked before it gets its name. Raises
        EnvironmentFailure for a disk that is full or content that is not what was pushed,
        LaunchError for a name that would leave the folder.
        """
        pull = Pull(
            self._store,
            dataset,
            folder,
            mode=mode,
            progress=progress,
            max_bytes_per_s=max_bytes_per_s,
        )
        return pull.run(is_dry=is_dry, delete=delete)

    def copy_from(
        self,
        source: Datasets,
        record: DatasetRecord,
        environment: Environment,
        reports: Reports = SILENT,
        *,
        is_dry: bool = False,
        max_bytes_per_s: int | None = None,
    ) -> Pushed:
        """Copy a version of the `environment` that `source` is of into this store.

        It gets the next number here; equal content gives the version there is. Safe to repeat
        after a kill. Raises EnvironmentFailure for files that differ from the pushed ones.
        """
        found = Source(
            store=source._store,
            record=record,
            stack=environment.stack,
            url=environment.storage.blob_endpoint.rstrip("/"),
        )
        return copy_version(
            found, self._store, reports, is_dry=is_dry, max_bytes_per_s=max_bytes_per_s
        )

    def register(self, name: str, prefix: str, progress: Progress = silent) -> Pushed:
        """Make a version from a folder of the store, without moving its files."""
        return register(self._store, name, prefix, progress)

    def plan_removal(self, ref: str) -> Removal:
        """Describe the version that `remove` would delete; raises NotFound."""
        return plan_removal(self._store, ref)

    def remove(self, removal: Removal, progress: Progress = silent) -> None:
        """Take a version away; its number stays taken."""
        remove(self._store, removal, progress)

    @contextmanager
    def files(self, *datasets: DatasetVersion) -> Generator[tuple[FileList, ...]]:
        """Fetch the lists of versions' files, there as long as the context."""
        with work_folder() as work:
            yield tuple(fetch_list(self._store, each, work) for each in datasets)


# --- For whoever starts a run -----------------------------------------------------------------


def resolve_dataset(environment: Environment, ref: str) -> DatasetVersion:
    """Pin `digits` or `digits@3` to a version; raises NotFound with what there is."""
    return Datasets.of(environment).resolve(ref).pinned()


def materialise(dataset: DatasetVersion, environment: Environment, workspace: Path) -> Path:
    """Give the folder with a version's content, `WORKSPACE/inputs/DIGEST`, files read-only.

    Downloaded by the first who asks, under a lock that the others wait for; one that is there
    costs neither network nor azure's import. A folder of that name is always whole,
    after a crash of the machine, too.
    """
    require_digest(dataset.digest)
    inputs = workspace / "inputs"
    final = inputs / dataset.digest
    if final.is_dir():
        return final
    with ExitStack() as held:
        with disk_errors(inputs):
            make_folder(inputs)
            held.enter_context(locked(inputs / f".{dataset.digest}.lock"))
        if final.is_dir():
            return final
        # Kept after a kill: what is in it is checked and not received again.
        partial = inputs / f".{dataset.digest}.partial"
        Datasets.of(environment).pull(dataset, partial, mode=0o444)
        with disk_errors(final):
            finish_folder(partial, final)
    return final
