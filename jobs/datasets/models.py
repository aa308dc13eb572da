"""Registered models in an environment's store: versions as of datasets, with the lineage of each.

They lie below `_models/` of the container `data`, in the layout of docs/data.md, so a model is a
copy of its own: it stays when the run that wrote it is removed.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from jobs.blobs.below import Below
from jobs.blobs.store import BlobStore, open_data_store
from jobs.contracts.errors import LaunchError, NotFound
from jobs.contracts.spec import DatasetVersion, Environment
from jobs.datasets.datasets import Datasets
from jobs.datasets.lineage import Lineage
from jobs.datasets.making import SILENT, Pushed, Reports
from jobs.datasets.paths import disk_errors
from jobs.datasets.records import MODELS, DatasetRecord
from jobs.host.files import write_file
from jobs.host.progress import Progress, silent

PREFIX = f"{MODELS}/"
# In a fetched folder: the record, and the model's files.
RECORD_FILE, FILES = "model.json", "files"
_REF = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{0,62})(@0*(?P<version>[1-9][0-9]{0,8}))?")


class Models:
    """The models of one store."""

    def __init__(self, store: BlobStore) -> None:
        self._versions = Datasets(Below(store, PREFIX))

    @classmethod
    def of(cls, environment: Environment) -> Models:
        """Open those of an environment; starts a dead local store again."""
        return cls(open_data_store(environment))

    def versions(
        self, name: str | None = None, *, damaged: list[LaunchError] | None = None
    ) -> list[DatasetRecord]:
        """List the versions of one model, or of all, newest first; errors go to `damaged`."""
        return self._versions.versions(name, damaged=damaged)

    def resolve(self, ref: str) -> DatasetRecord:
        """Find `name@version`, or the newest version of `name`; raises NotFound."""
        name, version = parse_model(ref)
        damaged: list[LaunchError] = []
        found = self.versions(name, damaged=damaged)
        for record in found:
            if version == record.version or (version is None and not damaged):
                return record
        if damaged:
            raise damaged[0]
        there = found or self.versions(damaged=[])
        names = ", ".join(sorted({each.ref for each in there}, reverse=True)[:5])
        hint = f"there is {names}" if names else "launch model register RUN"
        message = f"no model `{ref}` in the store"
        raise NotFound(message, hint=hint)

    def register(
        self, folder: Path, name: str, lineage: Lineage, reports: Reports = SILENT
    ) -> Pushed:
        """Send a folder as a new version of a model; equal content gives the version there is."""
        parse_model(name)
        return self._versions.push(folder, name, reports, lineage=lineage)

    def copy_from(
        self, source: Models, record: DatasetRecord, environment: Environment, reports: Reports
    ) -> Pushed:
        """Copy a model of the `environment` that `source` is of, with its lineage."""
        return self._versions.copy_from(source._versions, record, environment, reports)

    def fetch(self, record: DatasetRecord, folder: Path, progress: Progress = silent) -> None:
        """Write a model's files into `folder/files`, each checked; then its record and their list."""
        self._versions.pull(record.pinned(), folder / FILES, progress)
        with self._versions.files(record.pinned()) as (listed,), disk_errors(folder):
            told = {**msgspec.to_builtins(record), "listed": list(listed)}
            write_file(folder / RECORD_FILE, msgspec.json.format(msgspec.json.encode(told)))


def parse_model(ref: str) -> tuple[str, int | None]:
    """Split `name` or `name@version`; raises LaunchError for another text."""
    match = _REF.fullmatch(ref)
    if match is None:
        message = f"`{ref}` is not the name of a model or of its version"
        raise LaunchError(message, hint="NAME, or NAME@1; letters, digits, `.`, `_` and `-`")
    return match["name"], int(match["version"]) if match["version"] else None


def in_container(record: DatasetRecord) -> DatasetVersion:
    """Give a model's version with the place of its files in the container `data`."""
    pinned = record.pinned()
    return msgspec.structs.replace(pinned, prefix=PREFIX + pinned.content_prefix)
