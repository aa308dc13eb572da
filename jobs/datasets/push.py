"""Sends a folder as a new version of a dataset; the version exists when everything is there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from jobs.blobs.store import BLOCK_BYTES, BlobStore, Outgoing
from jobs.contracts.errors import EnvironmentFailure
from jobs.datasets.file_list import (
    FileList,
    send_list,
    split_md5s,
    work_folder,
    work_table,
    write_list,
)
from jobs.datasets.paths import DatasetFile
from jobs.datasets.records import DatasetRecord, Records, check_name
from jobs.datasets.scan import scan
from jobs.datasets.scan_cache import ScanState
from jobs.datasets.sharing import part
from jobs.host.progress import Counter, Progress, silent
from jobs.host.units import now_in_seconds

# How often what the store forgot (Azurite after a kill) is sent again.
MAX_ROUNDS = 5
# How long the end of a removal of equal content is waited for.
REMOVAL_S = 60.0


class Pushed(Struct, frozen=True, kw_only=True):
    """Counts of a push; nothing was sent where the content was there `already`.

    What was copied inside the store, from an older version, was not sent.
    """

    dataset: DatasetRecord
    already: bool
    files_sent: int = 0
    bytes_sent: int = 0
    files_copied: int = 0
    bytes_copied: int = 0


class Reports(Struct, frozen=True, kw_only=True):
    """Receivers of a push's progress and warnings."""

    reading: Progress = silent
    copying: Progress = silent
    sending: Progress = silent
    warn: Callable[[str], None] = lambda _: None


SILENT = Reports()


class _Blocks(Struct, frozen=True, kw_only=True):
    """The MD5s of a large file's blocks, joined; one line each beside the list of files."""

    path: str
    md5s: bytes


class _Moved:
    """Counts of missing files: copied inside the store, or sent."""

    def __init__(self, missing: FileList) -> None:
        self._missing = missing
        self.files_copied = self.bytes_copied = 0

    def copied(self, files: int, num_bytes: int) -> None:
        """Count."""
        self.files_copied += files
        self.bytes_copied += num_bytes

    def pushed(self, dataset: DatasetRecord, *, is_new: bool) -> Pushed:
        """Sum it up."""
        return Pushed(
            dataset=dataset,
            already=not is_new,
            files_sent=self._missing.files - self.files_copied,
            bytes_sent=self._missing.bytes - self.bytes_copied,
            files_copied=self.files_copied,
            bytes_copied=self.bytes_copied,
        )


class Push:
    """A push of one folder to a store, or `only` of one file in it."""

    def __init__(
        self,
        store: BlobStore,
        folder: Path,
        name: str,
        *,
        reports: Reports,
        max_bytes_per_s: int | None = None,
        only: str | None = None,
    ) -> None:
        self._store = store
        self._records = Records(store)
        self._folder = folder
        self._name = name
        self._reports = reports
        self._max_bytes_per_s = max_bytes_per_s
        self._only = only

    def run(self, *, is_dry: bool) -> Pushed:
        """Send the folder, or report the files that would be sent."""
        check_name(self._name)
        with work_folder() as work, ScanState.of(self._folder) as state:
            files = self._scan(state, work)
            there = self._find(files, state)
            if there is not None:
                return Pushed(dataset=there, already=True)
            wanted = DatasetRecord(
                schema=1,
                name=self._name,
                version=self._records.shelf(self._name).next_version,
                digest=files.digest,
                files=files.files,
                bytes=files.bytes,
                created=now_in_seconds(),
            )
            if is_dry:
                missing = self._missing(files, wanted.pinned().content_prefix, work)
                would = _Moved(missing)
                if parted := part(self._store, wanted, missing, work):
                    would.copied(parted.shared.files, parted.shared.bytes)
                return would.pushed(wanted, is_new=True)
            pushed = self._send(wanted, files, work)
            state.keep_version(self._name, files.digest, pushed.dataset.version)
            return pushed

    def _scan(self, state: ScanState, work: Path) -> FileList:
        """Read the folder; leaves its list, and that of its large files' blocks, on disk."""
        encode = msgspec.json.Encoder().encode
        with (work / "blocks.jsonl").open("wb") as blocks:

            def files() -> Iterator[DatasetFile]:
                reading, warn = self._reports.reading, self._reports.warn
                for each in scan(self._folder, state, reading, warn, only=self._only):
                    if each.block_md5s:
                        line = encode(_Blocks(path=each.path, md5s=each.block_md5s))
                        blocks.write(line + b"\n")
                    yield DatasetFile(
                        path=each.path,
                        bytes=each.bytes,
                        sha256=each.sha256.hex(),
                        md5=each.md5.hex(),
                    )

            return write_list(work / "files.jsonl", files())

    def _find(self, files: FileList, state: ScanState) -> DatasetRecord | None:
        """Find the version that has this content already."""
        remembered = state.version(self._name, files.digest)
        if remembered is not None:
            # One small request, where the store would have to be listed otherwise.
            record = self._records.record(self._name, remembered)
            if record is not None and record.digest == files.digest:
                return record
        shelf = self._records.shelf(self._name)
        if files.digest in shelf.leaving:
            raise _leaving(self._name)
        record = self._records.with_digest(self._name, files.digest, shelf)
        if record is not None:
            state.keep_version(self._name, files.digest, record.version)
        return record

    def _send(self, wanted: DatasetRecord, files: FileList, work: Path) -> Pushed:
        """Send the missing files, then make the version."""
        removed = self._records.shelf(self._name).removed
        moved = self._complete(wanted, files, work)
        send_list(self._store, self._name, files)
        record, is_new = self._records.claim(wanted)
        shelf = self._records.shelf(self._name)
        if (
            shelf.removed != removed
            or files.digest in shelf.leaving
            or files.digest not in shelf.listed
        ):
            # A version of equal content was removed at the same time, by somebody who may not
            # have seen this one. From now on they do; what they took is sent once more.
            self._wait_for_removal(record)
            self._complete(wanted, files, work)
            send_list(self._store, self._name, files)
        return moved.pushed(record, is_new=is_new)

    def _wait_for_removal(self, record: DatasetRecord) -> None:
        until = time.monotonic() + REMOVAL_S
        while record.digest in self._records.shelf(self._name).leaving:
            if time.monotonic() > until:
                raise _leaving(self._name)
            time.sleep(0.5)

    def _complete(self, wanted: DatasetRecord, files: FileList, work: Path) -> _Moved:
        """Copy what an older version has, and send the rest until the store lists every file."""
        prefix = wanted.pinned().content_prefix
        missing = self._missing(files, prefix, work)
        moved = _Moved(missing)
        if parted := part(self._store, wanted, missing, work):
            shown = Counter(parted.shared.files, parted.shared.bytes, self._reports.copying)

            def copied(num_files: int, num_bytes: int, _num_found: int = 0) -> None:
                moved.copied(num_files, num_bytes)
                shown.add(num_files, num_bytes)

            self._store.copy(parted.copies(prefix), copied)
            # A copy that was not made is found below, by the listing that looks for all.
            missing = parted.rest
            if not missing.files:
                missing = self._missing(files, prefix, work)
        for _ in range(MAX_ROUNDS):
            if not missing.files:
                return moved
            self._store.send(
                self._outgoing(missing, prefix, work),
                Counter(missing.files, missing.bytes, self._reports.sending).add,
                max_bytes_per_s=self._max_bytes_per_s,
            )
            missing = self._missing(files, prefix, work)
        if missing.files:
            message = f"the store lost {missing.files} files that it had accepted"
            raise EnvironmentFailure(message, hint="type the same again when the store works again")
        return moved

    def _missing(self, files: FileList, prefix: str, work: Path) -> FileList:
        """Yield the files of a list that the store does not have, by one listing in any order."""
        schema = "CREATE TABLE there (path TEXT PRIMARY KEY, bytes, md5) WITHOUT ROWID"
        with work_table(work / "there.sqlite", schema) as database:
            listed = (
                (blob.name.removeprefix(prefix), blob.bytes, blob.md5.hex() if blob.md5 else "")
                for blob in self._store.list(prefix)
            )
            database.executemany("INSERT OR REPLACE INTO there VALUES (?, ?, ?)", listed)
            if not database.execute("SELECT EXISTS (SELECT 1 FROM there)").fetchone()[0]:
                return files

            def is_there(file: DatasetFile) -> bool:
                query = "SELECT 1 FROM there WHERE path = ? AND bytes = ? AND md5 = ?"
                found = database.execute(query, (file.path, file.bytes, file.md5))
                return found.fetchone() is not None

            wanted = (file for file in files if not is_there(file))
            return write_list(work / "missing.jsonl", wanted)

    def _outgoing(self, files: FileList, prefix: str, work: Path) -> Iterator[Outgoing]:
        decode = msgspec.json.Decoder(_Blocks).decode
        with (work / "blocks.jsonl").open("rb") as lines:
            for file in files:
                md5s = b""
                if file.bytes > BLOCK_BYTES:
                    large = map(decode, lines)
                    md5s = next(each.md5s for each in large if each.path == file.path)
                yield Outgoing(
                    name=prefix + file.path,
                    path=self._folder / file.path,
                    bytes=file.bytes,
                    md5=bytes.fromhex(file.md5),
                    block_md5s=split_md5s(md5s),
                )


def _leaving(name: str) -> EnvironmentFailure:
    message = f"a version of `{name}` with this content is being removed"
    return EnvironmentFailure(
        message,
        hint="type the same again when `launch data rm` is over; where it was killed, after it",
    )
