"""Makes a version in a store: its files first, its record last; safe to kill, repeat and race."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from jobs.blobs.store import BlobStore
from jobs.contracts.errors import EnvironmentFailure
from jobs.datasets.file_list import FileList, send_list, work_table, write_list
from jobs.datasets.paths import DatasetFile
from jobs.datasets.records import DatasetRecord, Records
from jobs.datasets.sharing import part
from jobs.host.progress import Counter, Progress, ProgressLines, silent

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

    @classmethod
    def on(
        cls,
        lines: ProgressLines,
        *,
        reading: str = "reading",
        warn: Callable[[str], None] = lambda _: None,
    ) -> Reports:
        """Open a line for each, where reading and copying take more than a second."""
        return cls(
            reading=lines.open(reading, after_s=1.0),
            copying=lines.open("copying", after_s=1.0),
            sending=lines.open("sending"),
            warn=warn,
        )


SILENT = Reports()


class Counts:
    """Counts of missing files: copied inside the store, or sent."""

    def __init__(self, missing: FileList) -> None:
        self._missing = missing
        self.files_copied = self.bytes_copied = 0

    def copied(self, files: int, num_bytes: int) -> None:
        """Count files and bytes that the store copied."""
        self.files_copied += files
        self.bytes_copied += num_bytes

    def pushed(self, dataset: DatasetRecord, *, is_new: bool) -> Pushed:
        """Sum the push up as its result."""
        return Pushed(
            dataset=dataset,
            already=not is_new,
            files_sent=self._missing.files - self.files_copied,
            bytes_sent=self._missing.bytes - self.bytes_copied,
            files_copied=self.files_copied,
            bytes_copied=self.bytes_copied,
        )


# Sends files of a list below a prefix; the folder is for its own files on disk.
Send = Callable[[FileList, str, Path], None]


class Making:
    """Makes versions in one store; `send` brings the files of a list that the store lacks."""

    def __init__(self, store: BlobStore, *, copying: Progress, send: Send) -> None:
        self._store = store
        self._records = Records(store)
        self._copying = copying
        self._send = send

    def there(self, name: str, digest: str) -> DatasetRecord | None:
        """Find the version of this content; raises EnvironmentFailure while it is being removed."""
        shelf = self._records.shelf(name)
        if digest in shelf.leaving:
            raise leaving_failure(name)
        return self._records.with_digest(name, digest, shelf)

    def next_version(self, name: str) -> int:
        """Give the number that a version would get now."""
        return self._records.shelf(name).next_version

    def would_make(self, wanted: DatasetRecord, files: FileList, work: Path) -> Pushed:
        """Count what `make` would copy and send."""
        missing = self._missing(files, wanted.pinned().content_prefix, work)
        would = Counts(missing)
        if parted := part(self._store, wanted, missing, work):
            would.copied(parted.shared.files, parted.shared.bytes)
        return would.pushed(wanted, is_new=True)

    def make(self, wanted: DatasetRecord, files: FileList, work: Path) -> Pushed:
        """Send the missing files, then make the version."""
        removed = self._records.shelf(wanted.name).removed
        moved = self._complete(wanted, files, work)
        send_list(self._store, wanted.name, files)
        record, is_new = self._records.claim(wanted)
        shelf = self._records.shelf(wanted.name)
        if (
            shelf.removed != removed
            or files.digest in shelf.leaving
            or files.digest not in shelf.listed
        ):
            # A version of equal content was removed at the same time, by somebody who may not
            # have seen this one. From now on they do; what they took is sent once more.
            self._wait_for_removal(record)
            self._complete(wanted, files, work)
            send_list(self._store, wanted.name, files)
        return moved.pushed(record, is_new=is_new)

    def _wait_for_removal(self, record: DatasetRecord) -> None:
        until = time.monotonic() + REMOVAL_S
        while record.digest in self._records.shelf(record.name).leaving:
            if time.monotonic() > until:
                raise leaving_failure(record.name)
            time.sleep(0.5)

    def _complete(self, wanted: DatasetRecord, files: FileList, work: Path) -> Counts:
        """Copy what an older version has, and send the rest until the store lists every file."""
        prefix = wanted.pinned().content_prefix
        missing = self._missing(files, prefix, work)
        moved = Counts(missing)
        if parted := part(self._store, wanted, missing, work):
            shown = Counter(parted.shared.files, parted.shared.bytes, self._copying)

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
            self._send(missing, prefix, work)
            missing = self._missing(files, prefix, work)
        if missing.files:
            message = f"the store lost {missing.files} files that it had accepted"
            raise EnvironmentFailure(message, hint="type the same again when the store works again")
        return moved

    def _missing(self, files: FileList, prefix: str, work: Path) -> FileList:
        """List the files that the store does not have, by one listing in any order."""
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


def leaving_failure(name: str) -> EnvironmentFailure:
    message = f"a version of `{name}` with this content is being removed"
    return EnvironmentFailure(
        message,
        hint="type the same again when `launch data rm` is over; where it was killed, after it",
    )
