"""Makes a version of data that is in the store's container already, where it lies."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from jobs.blobs.store import Blob, BlobStore
from jobs.contracts.errors import EnvironmentFailure, LaunchError
from jobs.datasets.file_list import FileList, send_list, work_folder, work_table, write_list
from jobs.datasets.making import Pushed
from jobs.datasets.paths import DatasetFile, check_path
from jobs.datasets.records import MODELS, RECORDS, DatasetRecord, Records, check_name
from jobs.datasets.scan import digest
from jobs.host.parallel import in_order
from jobs.host.progress import Counter, Progress, silent
from jobs.host.units import now_in_seconds

_DIGEST = re.compile(r"[0-9a-f]{64}/")


def register(store: BlobStore, name: str, prefix: str, progress: Progress = silent) -> Pushed:
    """Read every blob below a prefix once, and make it a version of `name`; nothing is moved.

    Raises LaunchError for a prefix with nothing below it, and for names that no dataset may have;
    EnvironmentFailure for a blob that goes or changes while it is read.
    """
    check_name(name)
    prefix = prefix.strip("/") + "/"
    if prefix == "/" or prefix.split("/")[0] in (RECORDS, MODELS):
        message = f"`{prefix}` cannot become a dataset: it is not a folder in the container `data`"
        raise LaunchError(message, hint="launch data register NAME PREFIX, e.g. raw/photos")
    owner = _owner(store, prefix)
    if owner is not None:
        message = f"`{prefix}` holds the files of `{owner}` and is deleted with it"
        raise LaunchError(
            message, hint=f"launch data ls {owner}; or choose a folder with files of your own"
        )
    with work_folder() as work:
        files = _read_all(store, prefix, progress, work)
        send_list(store, name, files)
        wanted = DatasetRecord(
            schema=1,
            name=name,
            version=1,
            digest=files.digest,
            files=files.files,
            bytes=files.bytes,
            created=now_in_seconds(),
            prefix=prefix,
        )
        record, is_new = Records(store).claim(wanted)
    return Pushed(dataset=record, already=not is_new)


def _owner(store: BlobStore, prefix: str) -> str | None:
    """Find the dataset whose pushed content lies there, also while it is pushed or removed."""
    name, _, rest = prefix.partition("/")
    if _DIGEST.match(rest):
        return name
    if rest:
        return None
    shelf = Records(store).shelf(name)
    # Of a version that was registered in place nothing lies below its digest.
    pushed = (store.list(f"{name}/{digest}/") for digest in shelf.listed | shelf.leaving)
    return name if any(next(blobs, None) for blobs in pushed) else None


def _read_all(store: BlobStore, prefix: str, progress: Progress, work: Path) -> FileList:
    """Read the list of files, sorted by path; the store may list them in any order."""
    schema = "CREATE TABLE listed (path TEXT PRIMARY KEY, bytes) WITHOUT ROWID"
    with work_table(work / "listed.sqlite", schema) as database:
        rows = ((path, blob.bytes) for path, blob in _blobs(store, prefix))
        database.executemany("INSERT INTO listed VALUES (?, ?)", rows)
        _part_folders(database, prefix)
        count, num_bytes = database.execute(
            "SELECT count(*), coalesce(sum(bytes), 0) FROM listed"
        ).fetchone()
        if not count:
            message = f"the store has no file under `{prefix}`"
            raise LaunchError(message, hint="type a folder of the container `data`")
        counter = Counter(count, num_bytes, progress)

        def read(listed: tuple[str, int]) -> DatasetFile:
            path, num_bytes = listed
            sha256, md5, length = digest(store.content(prefix + path))
            if length != num_bytes:
                message = (
                    f"`{prefix}{path}` changed while it was read: it was listed with {num_bytes} "
                    f"bytes, and has {length}"
                )
                raise EnvironmentFailure(message, hint="start the command again when nobody writes")
            return DatasetFile(path=path, bytes=length, sha256=sha256.hex(), md5=md5.hex())

        def files() -> Iterator[DatasetFile]:
            rows = database.execute("SELECT path, bytes FROM listed ORDER BY path")
            for _, file in in_order(read, rows):
                counter.add(1, file.bytes)
                yield file

        return write_list(work / "files.jsonl", files())


def _part_folders(database: sqlite3.Connection, prefix: str) -> None:
    """Leave out empty blobs that other blobs lie below: some tools make one for each folder.

    Raises LaunchError where one has content.
    """
    # `0` is the character behind `/`.
    is_folder = """
        EXISTS (SELECT 1 FROM listed AS inner WHERE inner.path > listed.path || '/'
                AND inner.path < listed.path || '0')"""
    query = f"SELECT path, bytes FROM listed WHERE bytes > 0 AND {is_folder}"  # noqa: S608
    if found := database.execute(query).fetchone():
        path, num_bytes = found
        message = (
            f"`{prefix}{path}` is a file of {num_bytes} bytes, and other files lie below it: "
            "no disk can hold both"
        )
        raise LaunchError(message, hint="rename one of them in the store")
    database.execute(f"DELETE FROM listed WHERE {is_folder}")  # noqa: S608


def _blobs(store: BlobStore, prefix: str) -> Iterator[tuple[str, Blob]]:
    for blob in store.list(prefix):
        path = blob.name.removeprefix(prefix)
        if not path or (blob.bytes == 0 and path.endswith("/")):
            continue  # stands for a folder
        check_path(path)
        yield path, blob
