"""Datasets in the environment's store: push, list, resolve, pull, and hand to a run.

docs/data.md says where things lie. A version exists from the moment its `N.json` does, which is
written last and never again; content lies under its digest, so equal content is stored once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from jobs.dataset_files import (
    CheckedReader,
    DatasetFile,
    check_space,
    digest_of,
    disk_errors,
    inside,
    is_equal,
    scan_folder,
    write_checked,
)
from jobs.errors import EnvironmentFailure, LaunchError, NotFound
from jobs.parallel import parallel
from jobs.progress import Progress, Transfer, silent
from jobs.spec import DatasetVersion, Environment
from jobs.store import BlobStore, open_data_store

RECORDS = "_datasets"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_RECORD = re.compile(rf"{RECORDS}/[^/]+/([1-9][0-9]*)\.json")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class DatasetRecord(Struct, frozen=True, kw_only=True):
    """`_datasets/NAME/N.json`."""

    schema: Literal[1]
    name: str
    version: int
    digest: str
    files: int
    bytes: int
    created: str

    @property
    def ref(self) -> str:
        """How a job file names it."""
        return f"{self.name}@{self.version}"

    def pinned(self) -> DatasetVersion:
        """The same as a run keeps it."""
        return DatasetVersion(
            name=self.name,
            version=self.version,
            digest=self.digest,
            files=self.files,
            bytes=self.bytes,
        )


class Pushed(Struct, frozen=True, kw_only=True):
    """What a push did; nothing was sent where the content was there `already`."""

    dataset: DatasetRecord
    already: bool
    files_sent: int
    bytes_sent: int


class Pulled(Struct, frozen=True, kw_only=True):
    """What a pull did; files that were there and equal are not counted."""

    files_received: int
    bytes_received: int


class Datasets:
    """The datasets of one store."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store

    @classmethod
    def of(cls, environment: Environment) -> Datasets:
        """Open those of an environment; starts a dead local store again."""
        return cls(open_data_store(environment))

    def versions(self, name: str | None = None) -> list[DatasetRecord]:
        """All versions of one dataset, or of all; by name, newest first."""
        prefix = f"{RECORDS}/{name}/" if name else f"{RECORDS}/"
        blobs = [blob.name for blob in self._store.list(prefix) if _version_of(blob.name)]
        records = parallel(self._read_record, blobs)
        return sorted(records, key=lambda record: (record.name, -record.version))

    def resolve(self, ref: str) -> DatasetRecord:
        """Find `name@version`, or the newest version of `name`; raises NotFound."""
        name, version = parse_ref(ref)
        if version is not None:
            content = self._store.read(_record_name(name, version))
            if content is not None:
                return _parse_record(content, _record_name(name, version))
        versions = self._version_numbers(name)
        if version is None and versions:
            return self._read_record(_record_name(name, versions[-1]))
        raise self._not_found(name, version, versions)

    def push(self, folder: Path, name: str, progress: Progress = silent) -> Pushed:
        """Send a folder as a new version of `name`; equal content gives the version there is.

        Safe to repeat after a kill (what was sent is not sent again) and to race: different
        contents get different versions. Raises LaunchError for a folder that cannot be sent.
        """
        check_name(name)
        files = scan_folder(folder)
        digest = digest_of(files)
        for record in self.versions(name):
            if record.digest == digest:
                return Pushed(dataset=record, already=True, files_sent=0, bytes_sent=0)
        sent = self._send(folder, files, f"{name}/{digest}/", progress)
        manifest = b"".join(msgspec.json.encode(file) + b"\n" for file in files)
        self._store.create(_manifest_name(name, digest), manifest)
        record, is_new = self._commit(name, digest, files)
        return Pushed(
            dataset=record,
            already=not is_new,
            files_sent=len(sent),
            bytes_sent=sum(file.bytes for file in sent),
        )

    def pull(
        self,
        dataset: DatasetVersion,
        folder: Path,
        progress: Progress = silent,
        *,
        mode: int = 0o644,
    ) -> Pulled:
        """Write a version's files into `folder`, with that mode.

        Files that are there and equal stay, others that are there too. Each new one is checked
        before it gets its name. Raises EnvironmentFailure for a disk that is full or content
        that is not what was pushed, LaunchError for a name that would leave the folder.
        """
        files = self._manifest(dataset)
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        missing = [file for file in files if not is_equal(inside(folder, file.path), file)]
        check_space(
            folder, sum(file.bytes for file in missing), f"`{dataset.name}@{dataset.version}`"
        )
        self._receive(dataset, missing, folder, progress, mode)
        return Pulled(
            files_received=len(missing), bytes_received=sum(file.bytes for file in missing)
        )

    def _version_numbers(self, name: str) -> list[int]:
        found = (_version_of(blob.name) for blob in self._store.list(f"{RECORDS}/{name}/"))
        return sorted(version for version in found if version is not None)

    def _read_record(self, blob: str) -> DatasetRecord:
        content = self._store.read(blob)
        if content is None:
            message = f"`{blob}` went away while it was being read"
            raise EnvironmentFailure(message, hint="try again")
        return _parse_record(content, blob)

    def _not_found(self, name: str, version: int | None, versions: Sequence[int]) -> NotFound:
        if versions:
            there = ", ".join(f"{name}@{number}" for number in versions[-5:])
            return NotFound(f"no dataset `{name}@{version}`", hint=f"there is {there}")
        names = sorted({blob.name.split("/")[1] for blob in self._store.list(f"{RECORDS}/")})
        there = f"there is {', '.join(names)}; or " if names else ""
        ref = name if version is None else f"{name}@{version}"
        return NotFound(
            f"no dataset `{ref}` in the store", hint=f"{there}launch data push DIR {name}"
        )

    def _send(
        self, folder: Path, files: Sequence[DatasetFile], prefix: str, progress: Progress
    ) -> list[DatasetFile]:
        there = {blob.name: (blob.bytes, blob.md5) for blob in self._store.list(prefix)}
        missing = [
            file
            for file in files
            if there.get(prefix + file.path) != (file.bytes, bytes.fromhex(file.md5))
        ]

        def send(file: DatasetFile) -> None:
            with CheckedReader(folder / file.path, file) as source:
                self._store.send(prefix + file.path, source, file.bytes, bytes.fromhex(file.md5))

        parallel(send, missing, _reporter(missing, progress))
        return missing

    def _commit(
        self, name: str, digest: str, files: Sequence[DatasetFile]
    ) -> tuple[DatasetRecord, bool]:
        """Claim the next free number; another push of equal content may have done it already."""
        while True:
            versions = self.versions(name)
            for record in versions:
                if record.digest == digest:
                    return record, False
            record = DatasetRecord(
                schema=1,
                name=name,
                version=versions[0].version + 1 if versions else 1,
                digest=digest,
                files=len(files),
                bytes=sum(file.bytes for file in files),
                created=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            )
            blob = _record_name(name, record.version)
            if self._store.create(blob, msgspec.json.encode(record)):
                return record, True

    def _manifest(self, dataset: DatasetVersion) -> list[DatasetFile]:
        blob = _manifest_name(dataset.name, dataset.digest)
        content = self._store.read(blob)
        if content is None:
            message = (
                f"the list of files of `{dataset.name}@{dataset.version}` is missing: `{blob}`"
            )
            raise EnvironmentFailure(message, hint=f"launch data push DIR {dataset.name}")
        try:
            files = msgspec.json.decode(
                b"[" + b",".join(content.splitlines()) + b"]", type=list[DatasetFile]
            )
        except msgspec.MsgspecError as error:
            message = f"`{blob}` cannot be read: {error}"
            raise EnvironmentFailure(message, hint=f"launch data push DIR {dataset.name}") from None
        if digest_of(files) != dataset.digest:
            message = f"`{blob}` does not have the digest of `{dataset.name}@{dataset.version}`"
            raise EnvironmentFailure(message, hint=f"launch data push DIR {dataset.name}")
        return files

    def _receive(
        self,
        dataset: DatasetVersion,
        files: Sequence[DatasetFile],
        folder: Path,
        progress: Progress,
        mode: int,
    ) -> None:
        prefix = f"{dataset.name}/{dataset.digest}/"

        def receive(file: DatasetFile) -> None:
            target = inside(folder, file.path)
            with disk_errors(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                write_checked(target, self._store.receive(prefix + file.path), file, mode)

        parallel(receive, files, _reporter(files, progress))


# --- For whoever starts a run -----------------------------------------------------------------


def resolve_dataset(environment: Environment, ref: str) -> DatasetVersion:
    """Pin `digits` or `digits@3` to a version; raises NotFound with what there is."""
    return Datasets.of(environment).resolve(ref).pinned()


def list_datasets(environment: Environment) -> list[DatasetVersion]:
    """All versions of all datasets; by name, newest first."""
    return [record.pinned() for record in Datasets.of(environment).versions()]


def materialise(
    dataset: DatasetVersion,
    environment: Environment,
    workspace: Path,
    progress: Progress = silent,
) -> Path:
    """Give the folder with a version's content, `WORKSPACE/inputs/DIGEST`, files read-only.

    Downloaded by the first who asks, under a lock that the others wait for; one that is there
    costs neither network nor azure's import. A folder of that name is always whole.
    """
    import fcntl

    if not _DIGEST.fullmatch(dataset.digest):
        message = f"`{dataset.digest}` is no digest of a dataset"
        raise LaunchError(message, hint="launch data ls")
    inputs = workspace / "inputs"
    final = inputs / dataset.digest
    if final.is_dir():
        return final
    with disk_errors(inputs):
        inputs.mkdir(parents=True, exist_ok=True)
        lock = (inputs / f".{dataset.digest}.lock").open("wb")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if final.is_dir():
            return final
        # Kept after a kill: what is in it is checked and not received again.
        partial = inputs / f".{dataset.digest}.partial"
        Datasets.of(environment).pull(dataset, partial, progress, mode=0o444)
        with disk_errors(final):
            partial.rename(final)
    return final


# --- Names ----------------------------------------------------------------------------------


def parse_ref(ref: str) -> tuple[str, int | None]:
    """Split `name` or `name@version`."""
    name, at, version = ref.partition("@")
    check_name(name)
    if not at:
        return name, None
    if not version.isascii() or not version.isdecimal() or int(version) < 1:
        message = f"`{ref}` names no version of a dataset"
        raise LaunchError(message, hint=f"{name}@1, or {name} for the newest")
    return name, int(version)


def check_name(name: str) -> None:
    """Raise LaunchError where a dataset cannot be called so."""
    if not _NAME.fullmatch(name):
        message = f"`{name}` is no name for a dataset"
        raise LaunchError(
            message, hint="letters, digits, `.`, `_` and `-`, a letter or digit first"
        )


def _record_name(name: str, version: int) -> str:
    return f"{RECORDS}/{name}/{version}.json"


def _manifest_name(name: str, digest: str) -> str:
    return f"{RECORDS}/{name}/{digest}.files.jsonl"


def _version_of(blob: str) -> int | None:
    found = _RECORD.fullmatch(blob)
    return int(found[1]) if found else None


def _parse_record(content: bytes, blob: str) -> DatasetRecord:
    try:
        return msgspec.json.decode(content, type=DatasetRecord)
    except msgspec.MsgspecError as error:
        message = f"`{blob}` cannot be read: {error}"
        raise EnvironmentFailure(message, hint="a newer `launch` may have written it") from None


def _reporter(files: Sequence[DatasetFile], progress: Progress) -> Callable[[DatasetFile], None]:
    """Count files as they are done, and tell."""
    total = sum(file.bytes for file in files)
    state = Transfer(files_done=0, files=len(files), bytes_done=0, bytes=total)

    def done(file: DatasetFile) -> None:
        nonlocal state
        state = msgspec.structs.replace(
            state, files_done=state.files_done + 1, bytes_done=state.bytes_done + file.bytes
        )
        progress(state)

    return done
