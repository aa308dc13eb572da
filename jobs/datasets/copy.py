"""Copies a version from one environment's store to another's; its record is written last.

Where both stores are on Azure the service copies the files itself. What it does not copy passes
through this machine, some files at a time, each checked by its SHA-256.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from jobs.blobs.files import outgoing
from jobs.blobs.store import BlobStore, Copy, Incoming, Outgoing
from jobs.contracts.errors import EnvironmentFailure
from jobs.datasets.file_list import FileList, fetch_list, work_folder
from jobs.datasets.making import SILENT, Making, Pushed, Reports
from jobs.datasets.paths import DatasetFile, check_space, disk_errors
from jobs.datasets.records import CopiedFrom, DatasetRecord
from jobs.datasets.scan_cache import COPY_PREFIX, cache_folder, copy_lock
from jobs.host.private import locked, make_folder
from jobs.host.progress import Counter
from jobs.host.units import now_in_seconds

# Files that lie on this machine's disk at a time: as many, or one larger file.
BATCH_BYTES, BATCH_FILES = 128 << 20, 2_000
# The service makes no larger blob by one request (Put Blob From URL).
LARGEST_COPY = 5_000 << 20
SAS_S = 12 * 3600


class Source(Struct, frozen=True, kw_only=True):
    """A version to copy, and the store of the stack that has it."""

    store: BlobStore
    record: DatasetRecord
    stack: str
    url: str


def copy_version(
    source: Source,
    target: BlobStore,
    reports: Reports = SILENT,
    *,
    is_dry: bool = False,
    max_bytes_per_s: int | None = None,
) -> Pushed:
    """Copy a version under its name and the target's next number; equal content gives the version there is.

    Safe to repeat after a kill: files that arrived are not copied again. Raises
    EnvironmentFailure for files that differ from the pushed ones.
    """
    return _VersionCopy(source, target, reports, max_bytes_per_s).run(is_dry=is_dry)


class _VersionCopy:
    """The copy of one version."""

    def __init__(
        self, source: Source, target: BlobStore, reports: Reports, max_bytes_per_s: int | None
    ) -> None:
        self._source = source
        self._target = target
        self._reports = reports
        self._max_bytes_per_s = max_bytes_per_s
        self._prefix = source.record.pinned().content_prefix
        self._making = Making(target, copying=reports.copying, send=self._bring)
        self._is_service_asked = False
        self._files_copied = self._bytes_copied = 0

    def run(self, *, is_dry: bool) -> Pushed:
        """Copy it, or count the files that would be copied."""
        record = self._source.record
        there = self._making.there(record.name, record.digest)
        if there is not None:
            return Pushed(dataset=there, already=True)
        wanted = replace(
            record,
            version=self._making.next_version(record.name),
            created=now_in_seconds(),
            prefix=None,
            copied_from=CopiedFrom(
                stack=self._source.stack, store=self._source.url, version=record.version
            ),
        )
        with work_folder() as work:
            files = fetch_list(self._source.store, record.pinned(), work)
            if is_dry:
                return self._making.would_make(wanted, files, work)
            made = self._making.make(wanted, files, work)
        return replace(
            made,
            files_sent=made.files_sent - self._files_copied,
            bytes_sent=made.bytes_sent - self._bytes_copied,
            files_copied=made.files_copied + self._files_copied,
            bytes_copied=made.bytes_copied + self._bytes_copied,
        )

    def _bring(self, missing: FileList, prefix: str, work: Path) -> None:
        """Have the service copy, the first time; what is missing then passes through here."""
        if not self._is_service_asked:
            self._is_service_asked = True
            if self._copy_by_service(missing, prefix):
                return  # the listing tells what was copied
        self._stream(missing, prefix, work)

    def _copy_by_service(self, missing: FileList, prefix: str) -> int:
        """Copy files without this machine; gives their number."""
        try:
            origin = self._source.store.as_origin(SAS_S)
        except EnvironmentFailure:
            return 0  # an identity that may read the store, and may sign nothing
        if origin is None:
            return 0
        shown = Counter(missing.files, missing.bytes, self._reports.copying)

        def copied(num_files: int, num_bytes: int, _num_found: int = 0) -> None:
            self._files_copied += num_files
            self._bytes_copied += num_bytes
            shown.add(num_files, num_bytes)

        copies = (
            Copy(
                source=self._prefix + file.path,
                name=prefix + file.path,
                bytes=file.bytes,
                md5=bytes.fromhex(file.md5),
            )
            for file in missing
            if file.bytes <= LARGEST_COPY
        )
        self._target.copy(copies, copied, origin=origin)
        return self._files_copied

    def _stream(self, missing: FileList, prefix: str, work: Path) -> None:
        """Pass files through a folder that stays after a kill, so that what arrived is kept."""
        receiving = Counter(missing.files, missing.bytes, self._reports.reading)
        sending = Counter(missing.files, missing.bytes, self._reports.sending)
        above = cache_folder() if cache_folder().is_dir() else work
        folder = above / f"{COPY_PREFIX}{self._source.record.digest}"
        with disk_errors(folder), locked(copy_lock(folder)):
            for batch in _batches(missing):
                make_folder(folder)
                check_space(folder, sum(file.bytes for file in batch), self._source.record.ref)
                # By digest: a name of the store becomes no name of this disk.
                places = {file.sha256: folder / file.sha256 for file in batch}
                self._receive(batch, places, receiving)
                self._target.send(
                    (self._outgoing(prefix, file, places[file.sha256]) for file in batch),
                    sending.add,
                    max_bytes_per_s=self._max_bytes_per_s,
                )
                shutil.rmtree(folder)

    def _receive(self, batch: list[DatasetFile], places: dict[str, Path], counter: Counter) -> None:
        wanted = {file.sha256: file for file in batch if not places[file.sha256].exists()}
        for file in batch:
            if wanted.get(file.sha256) is not file:
                counter.add(1, file.bytes, file.bytes)  # equal to another one, or here already
        incoming = (
            Incoming(
                name=self._prefix + file.path,
                path=places[file.sha256],
                bytes=file.bytes,
                sha256=file.sha256,
                mode=0o600,
            )
            for file in wanted.values()
        )
        self._source.store.receive(incoming, counter.add, max_bytes_per_s=self._max_bytes_per_s)

    def _outgoing(self, prefix: str, file: DatasetFile, path: Path) -> Outgoing:
        with disk_errors(path):
            made, sha256 = outgoing(prefix + file.path, path)
        if sha256.hex() != file.sha256:
            path.unlink()
            message = f"`{file.path}` changed on this machine's disk, in `{path.parent}`"
            raise EnvironmentFailure(message, hint="type the same again: it is received once more")
        if made.md5.hex() != file.md5:
            ref = self._source.record.ref
            message = f"the list of files of `{ref}` names another MD5 for `{file.path}`"
            raise EnvironmentFailure(message, hint=f"launch data pull {ref} --to DIR, and push it")
        return made


def _batches(files: FileList) -> Iterator[list[DatasetFile]]:
    batch: list[DatasetFile] = []
    num_bytes = 0
    for file in files:
        if batch and (len(batch) == BATCH_FILES or num_bytes + file.bytes > BATCH_BYTES):
            yield batch
            batch, num_bytes = [], 0
        batch.append(file)
        num_bytes += file.bytes
    if batch:
        yield batch
