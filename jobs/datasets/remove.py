"""Removes a version: its number stays taken, its content goes where no other version has it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Struct

from jobs.blobs.store import BlobStore
from jobs.contracts.errors import LaunchError
from jobs.datasets.file_list import list_name
from jobs.datasets.records import (
    DatasetRecord,
    Records,
    RemovedRecord,
    Unreadable,
    leaving_name,
    parse_ref,
    record_name,
    removed_name,
)
from jobs.host.progress import Progress, Transfer, silent
from jobs.host.units import now_in_seconds


class Removal(Struct, frozen=True, kw_only=True):
    """A version to remove; `content_stays` says why its files are not deleted, if so."""

    dataset: DatasetRecord
    content_stays: str | None


def plan_removal(store: BlobStore, ref: str) -> Removal:
    """Find the version, which has to be named; raises NotFound where it is not there.

    One whose removal was cut off is found as well. Raises Unreadable where another version of the
    name cannot be read, which may share the content: a removal would not come to its end.
    """
    name, version = parse_ref(ref)
    if version is None:
        message = f"`{ref}` names no version; a command removes one version"
        raise LaunchError(message, hint=f"launch data ls {name}, then launch data rm {name}@N")
    records = Records(store)
    record = records.record(name, version) or _half_removed(records, name, version)
    if record is None:
        record = records.resolve(ref)  # says what there is instead
    try:
        records.versions(name)
    except Unreadable as error:
        message = (
            f"`{record.ref}` was not removed, as another version may share its files: "
            f"{error.message}"
        )
        raise Unreadable(message, hint=error.hint) from None
    in_place = f"as it was registered in place: {record.prefix}"
    stays = in_place if record.prefix is not None else None
    return Removal(dataset=record, content_stays=stays)


def _half_removed(records: Records, name: str, version: int) -> DatasetRecord | None:
    """Find a version whose removal was cut off: its content is there, and nobody else's."""
    gone = records.removed(name, version)
    if gone is None:
        return None
    shelf, digest = records.shelf(name), gone.record.digest
    if digest in shelf.leaving:
        return gone.record
    is_left = digest in shelf.listed and records.with_digest(name, digest, shelf) is None
    return gone.record if is_left else None


def remove(store: BlobStore, removal: Removal, progress: Progress = silent) -> None:
    """Remove a version; after a kill the next call goes on.

    In this order a push of equal content at the same time never ends with a version whose
    content is gone: see Making.make, which looks after it has made its version, where this looks
    for versions after it has said that content leaves.
    """
    record = removal.dataset
    removed = RemovedRecord(schema=1, removed=now_in_seconds(), record=record)
    store.create(removed_name(record.name, record.version), msgspec.json.encode(removed))
    store.delete([record_name(record.name, record.version)])
    marker = leaving_name(record.name, record.digest)
    store.create(marker, b"")
    records = Records(store)
    others = [each for each in records.versions(record.name) if each.digest == record.digest]
    if not others:
        # The list first: without it nobody takes the content for whole.
        store.delete([list_name(record.name, record.digest)])
        if removal.content_stays is None:
            store.delete(_content(store, record, progress))
            progress(Transfer(files_done=record.files, bytes_done=0, files=record.files))
    store.delete([marker])


def _content(store: BlobStore, record: DatasetRecord, progress: Progress) -> Iterator[str]:
    """Yield the version's blobs, fewer after a removal that was cut off; report how many went."""
    for number, blob in enumerate(store.list(record.pinned().content_prefix)):
        yield blob.name
        if number < record.files:
            progress(Transfer(files_done=number, bytes_done=0, files=record.files))
