"""The records of dataset versions in a store: names, listing, finding, the claim of a number.

A version exists from the moment its `N.json` does, and a number is never used twice: one that
was removed keeps its `N.removed.json`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from jobs.blobs.below import Below
from jobs.blobs.store import BlobStore
from jobs.contracts.errors import EnvironmentFailure, LaunchError, NotFound
from jobs.contracts.spec import DatasetVersion, PathPart, Positive
from jobs.datasets.lineage import Lineage
from jobs.host.parallel import parallel
from jobs.host.structs import prepared

RECORDS = "_datasets"
# Below it lie registered models, in a layout of their own records.
MODELS = "_models"
Kind = TypeVar("Kind")
StoreUrl = Annotated[str, Meta(pattern=r"^https?://[A-Za-z0-9.:/_-]{1,200}$(?!\n)")]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_BLOB = re.compile(
    rf"{RECORDS}/(?P<name>{_NAME.pattern})/"
    r"(?:(?P<version>[1-9][0-9]*)(?P<removed>\.removed)?\.json"
    r"|(?P<listed>[0-9a-f]{64})\.files\.jsonl|(?P<leaving>[0-9a-f]{64})\.leaving)"
)


class CopiedFrom(Struct, frozen=True, kw_only=True):
    """The version of another environment's store that a version is a copy of."""

    stack: PathPart
    store: StoreUrl
    version: Positive

    def text(self, name: str) -> str:
        """Write the source as NAME@VERSION of its stack."""
        return f"{name}@{self.version} of {self.stack} ({self.store})"


class DatasetRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`_datasets/NAME/N.json`; `prefix` is set where the content lay in the store already.

    `lineage` is that of a model's version.
    """

    schema: Literal[1]
    name: str
    version: int
    digest: str
    files: int
    bytes: int
    created: str
    prefix: str | None = None
    copied_from: CopiedFrom | None = None
    lineage: Lineage | None = None

    @property
    def ref(self) -> str:
        """The name and number by which a job file names the version."""
        return f"{self.name}@{self.version}"

    def pinned(self) -> DatasetVersion:
        """Give the version as a run's record keeps it."""
        return DatasetVersion(
            name=self.name,
            version=self.version,
            digest=self.digest,
            files=self.files,
            bytes=self.bytes,
            prefix=self.prefix,
        )


class RemovedRecord(Struct, frozen=True, kw_only=True):
    """`_datasets/NAME/N.removed.json`: what the version was, and when it went."""

    schema: Literal[1]
    removed: str
    record: DatasetRecord


class Shelf(Struct, frozen=True, kw_only=True):
    """Versions of one dataset name as one listing shows them, no record read.

    `listed` are the digests whose lists of files are there: no version of another one exists.
    `leaving` are those whose content is being deleted.
    """

    versions: tuple[int, ...]
    removed: tuple[int, ...]
    listed: frozenset[str]
    leaving: frozenset[str]

    @property
    def live(self) -> tuple[int, ...]:
        """The versions that are there, oldest first."""
        gone = set(self.removed)
        return tuple(version for version in self.versions if version not in gone)

    @property
    def next_version(self) -> int:
        """A number that was never used."""
        return max((*self.versions, *self.removed), default=0) + 1


class Unreadable(EnvironmentFailure):
    """A record in the store is damaged, or was not written by `launch`."""


class Records:
    """The records of one store."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store

    def shelf(self, name: str) -> Shelf:
        """List the versions of a name, by one listing."""
        return self._shelves(f"{RECORDS}/{name}/").get(name) or _shelf([])

    def versions(
        self, name: str | None = None, *, damaged: list[LaunchError] | None = None
    ) -> list[DatasetRecord]:
        """List the versions of one dataset, or of all; by name, newest first.

        Errors of records that cannot be read go to `damaged`; without it the first is raised.
        """
        shelves = self._shelves(f"{RECORDS}/{name}/" if name else f"{RECORDS}/")
        wanted = [
            record_name(each, version)
            for each in sorted(shelves)
            for version in reversed(shelves[each].live)
        ]
        found: list[DatasetRecord] = []
        for record in parallel(self._read_or_error, wanted):
            if isinstance(record, DatasetRecord):
                found.append(record)
            elif record is not None:  # None: removed since it was listed
                if damaged is None:
                    raise record
                damaged.append(record)
        return found

    def resolve(self, ref: str) -> DatasetRecord:
        """Find `name@version`, or the newest version of `name`; raises NotFound."""
        name, version = parse_ref(ref)
        if version is not None:
            record = self.record(name, version)
            if record is not None:
                return record
        live = self.shelf(name).live
        if version is None:
            for newest in reversed(live):
                record = self.record(name, newest)
                if record is not None:
                    return record
        raise self._not_found(name, version, live)

    def record(self, name: str, version: int) -> DatasetRecord | None:
        """Read the record of a version; None where it is not there."""
        return self._read(record_name(name, version))

    def removed(self, name: str, version: int) -> RemovedRecord | None:
        """Read the record of a removed version."""
        blob = removed_name(name, version)
        content = self._store.read(blob)
        if content is None:
            return None
        removed = _parse(content, self._full_name(blob), RemovedRecord)
        self._require_own(removed.record, blob, removed_name)
        return removed

    def with_digest(self, name: str, digest: str, shelf: Shelf) -> DatasetRecord | None:
        """Find the version of a name that has this content."""
        if digest not in shelf.listed:
            return None  # the list is written before the record, and goes after it
        for version in reversed(shelf.live):
            record = self.record(name, version)
            if record is not None and record.digest == digest:
                return record
        return None

    def claim(self, wanted: DatasetRecord) -> tuple[DatasetRecord, bool]:
        """Write the record under the next free number, and ignore the number that it has.

        Gives the record and True; or the version that somebody else made of the same content
        meanwhile, and False. Raises EnvironmentFailure for a record that nobody could read.
        """
        while True:
            shelf = self.shelf(wanted.name)
            there = self.with_digest(wanted.name, wanted.digest, shelf)
            if there is not None:
                return there, False
            record = msgspec.structs.replace(wanted, version=shelf.next_version)
            blob = record_name(record.name, record.version)
            if self._store.create(blob, self._encoded(record, blob)):
                return record, True

    def _shelves(self, prefix: str) -> dict[str, Shelf]:
        found: dict[str, list[re.Match[str]]] = {}
        for blob in self._store.list(prefix):
            match = _BLOB.fullmatch(blob.name)
            if match:
                found.setdefault(match["name"], []).append(match)
        return {name: _shelf(matches) for name, matches in found.items()}

    def _read(self, blob: str) -> DatasetRecord | None:
        content = self._store.read(blob)
        if content is None:
            return None
        record = _parse(content, self._full_name(blob), DatasetRecord)
        self._require_own(record, blob, record_name)
        return record

    def _encoded(self, record: DatasetRecord, blob: str) -> bytes:
        """Encode a record; raises EnvironmentFailure for one that nobody could read again."""
        content = msgspec.json.encode(record)
        try:
            msgspec.json.decode(content, type=prepared(DatasetRecord))
        except msgspec.MsgspecError as error:
            message = f"`{self._full_name(blob)}` would be invalid, and was not written: {error}"
            raise EnvironmentFailure(message, hint="look for a long or odd name there") from None
        return content

    def _full_name(self, blob: str) -> str:
        return self._store.full_name(blob) if isinstance(self._store, Below) else blob

    def _require_own(
        self, record: DatasetRecord, blob: str, blob_of: Callable[[str, int], str]
    ) -> None:
        """Raise EnvironmentFailure where a record says what it cannot be: anybody may have written it."""
        is_own = (
            blob_of(record.name, record.version) == blob
            and _DIGEST.fullmatch(record.digest)
            and min(record.files, record.bytes) >= 0
            and (record.prefix is None or _is_prefix(record.prefix))
        )
        if not is_own:
            message = f"`{self._full_name(blob)}` is invalid: `launch` did not write it"
            raise Unreadable(message, hint="check who may write to the container `data`")

    def _read_or_error(self, blob: str) -> DatasetRecord | Unreadable | None:
        try:
            return self._read(blob)
        except Unreadable as error:
            return error

    def _not_found(self, name: str, version: int | None, live: Sequence[int]) -> NotFound:
        there = ", ".join(f"{name}@{number}" for number in live[-5:])
        gone = self.removed(name, version) if version is not None else None
        if gone is not None:
            message = f"`{name}@{version}` was removed on {gone.removed[:10]}"
            return NotFound(
                message, hint=f"there is {there}" if there else f"launch data push DIR {name}"
            )
        if live:
            return NotFound(f"no dataset `{name}@{version}`", hint=f"there is {there}")
        shelves = self._shelves(f"{RECORDS}/")
        names = sorted(each for each, shelf in shelves.items() if shelf.live)
        others = f"there is {', '.join(names)}; or " if names else ""
        ref = name if version is None else f"{name}@{version}"
        return NotFound(
            f"no dataset `{ref}` in the store", hint=f"{others}launch data push DIR {name}"
        )


def parse_ref(ref: str) -> tuple[str, int | None]:
    """Split `name` or `name@version`."""
    name, at, version = ref.partition("@")
    check_name(name)
    if not at:
        return name, None
    if not re.fullmatch(r"0*[1-9][0-9]{0,8}", version):
        message = f"`{ref}` names no version of a dataset"
        raise LaunchError(message, hint=f"{name}@1, or {name} for the newest")
    return name, int(version)


def check_name(name: str) -> None:
    """Raise LaunchError where a dataset cannot be called so."""
    if not _NAME.fullmatch(name):
        message = f"invalid dataset name `{name}`"
        raise LaunchError(
            message, hint="use letters, digits, `.`, `_` and `-`; begin with a letter or digit"
        )


def require_digest(digest: str) -> None:
    """Raise LaunchError where a dataset cannot have this digest, by which folders are called."""
    if not _DIGEST.fullmatch(digest):
        message = f"invalid digest `{digest}` of a dataset"
        raise LaunchError(message, hint="launch data ls")


def record_name(name: str, version: int) -> str:
    """Name the blob of a version's record."""
    return f"{RECORDS}/{name}/{version}.json"


def removed_name(name: str, version: int) -> str:
    """Name the blob that stays of a version that was removed."""
    return f"{RECORDS}/{name}/{version}.removed.json"


def leaving_name(name: str, digest: str) -> str:
    """Name the blob that is there while a content is being deleted."""
    return f"{RECORDS}/{name}/{digest}.leaving"


def _shelf(matches: Sequence[re.Match[str]]) -> Shelf:
    numbers = [each for each in matches if each["version"]]
    return Shelf(
        versions=tuple(sorted(int(each["version"]) for each in numbers if not each["removed"])),
        removed=tuple(sorted(int(each["version"]) for each in numbers if each["removed"])),
        listed=frozenset(each["listed"] for each in matches if each["listed"]),
        leaving=frozenset(each["leaving"] for each in matches if each["leaving"]),
    )


def _is_prefix(prefix: str) -> bool:
    is_inside = not {".", ".."} & set(prefix.split("/")) and "\\" not in prefix
    return (
        is_inside
        and prefix.endswith("/")
        and not prefix.startswith(("/", f"{RECORDS}/", f"{MODELS}/"))
    )


def _parse(content: bytes, blob: str, kind: type[Kind]) -> Kind:
    try:
        return msgspec.json.decode(content, type=prepared(kind))
    except (msgspec.MsgspecError, RecursionError) as error:
        message = f"`{blob}` cannot be read: {error}"
        raise Unreadable(message, hint="a newer `launch` may have written it") from None
