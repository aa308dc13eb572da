"""Finds which files of a push the newest version has already: the store copies those itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from jobs.blobs.store import BlobStore, Copy
from jobs.contracts.errors import EnvironmentFailure, LaunchError
from jobs.datasets.file_list import FileList, fetch_list, write_list
from jobs.datasets.paths import DatasetFile
from jobs.datasets.records import DatasetRecord, Records


class Parted(Struct, frozen=True, kw_only=True):
    """Files in two lists: those that lie below `source` too, and the rest."""

    source: str
    shared: FileList
    rest: FileList

    def copies(self, prefix: str) -> Iterator[Copy]:
        """Yield the copies that give the shared files a place below `prefix`."""
        for file in self.shared:
            yield Copy(source=self.source + file.path, name=prefix + file.path, bytes=file.bytes)


def part(store: BlobStore, wanted: DatasetRecord, files: FileList, work: Path) -> Parted | None:
    """Sort files by whether the newest version has them; None if there is no newest version."""
    newest = _newest(Records(store), wanted) if files.files else None
    if newest is None:
        return None
    try:
        theirs = fetch_list(store, newest.pinned(), work)
    except (EnvironmentFailure, LaunchError):
        # A version that is being removed, or damaged, does not hinder another one. A store that
        # cannot be reached says so at the next request.
        return None
    shared = write_list(work / "shared.jsonl", _select(files, theirs, is_shared=True))
    if not shared.files:
        return None
    rest = write_list(work / "rest.jsonl", _select(files, theirs, is_shared=False))
    return Parted(source=newest.pinned().content_prefix, shared=shared, rest=rest)


def _newest(records: Records, wanted: DatasetRecord) -> DatasetRecord | None:
    """Find the newest pushed version of other content; registered files may change."""
    for version in reversed(records.shelf(wanted.name).live):
        record = records.record(wanted.name, version)
        if record is not None and record.prefix is None and record.digest != wanted.digest:
            return record
    return None


def _select(files: FileList, theirs: FileList, *, is_shared: bool) -> Iterator[DatasetFile]:
    """Yield the files that `theirs` has with equal path and content, or those that it has not."""
    others = iter(theirs)
    other = next(others, None)
    for file in files:
        while other is not None and other.path < file.path:
            other = next(others, None)
        if (file == other) is is_shared:
            yield file
