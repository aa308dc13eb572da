"""Copies blobs inside the store: no byte of theirs passes through here.

A copy is a favour of the store. What it refuses is left out, and whoever asked lists and sends it.
The rules: https://learn.microsoft.com/rest/api/storageservices/copy-blob and .../put-blob-from-url
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial

from msgspec import Struct

from jobs.blobs.transfers.connection import Connection, Steps
from jobs.blobs.transfers.container import Container, StoreError
from jobs.blobs.transfers.crew import Job
from jobs.blobs.transfers.files import Tally
from jobs.blobs.transfers.pace import Pace

# Answers that say something of one blob only; after any other no more copies are tried.
_GONE = ("BlobNotFound", "CannotVerifyCopySource")
# An earlier try, cut off, left a copy to this name that goes on.
_UNDER_WAY = "PendingCopyOperation"
_FIRST_LOOK_S, _LONGEST_LOOK_S = 0.25, 5.0
_STATUS = re.compile(rb"<CopyStatus>([^<]+)</CopyStatus>")


class Copy(Struct, frozen=True, kw_only=True):
    """A blob to be made of another one of the same container; `bytes` is its size."""

    source: str
    name: str
    bytes: int


class Copying:
    """The jobs of one `copy`."""

    def __init__(
        self, container: Container, copies: Iterable[Copy], tally: Tally, pace: Pace
    ) -> None:
        self._container = container
        self._copies: Iterator[Copy] = iter(copies)
        self._tally = tally
        self._pace = pace
        self._is_refused = False

    def next_job(self) -> Job | None:
        """See Jobs."""
        copy = None if self._is_refused else next(self._copies, None)
        return None if copy is None else partial(self._copy, copy)

    def _copy(self, copy: Copy, connection: Connection) -> Steps[None]:
        try:
            answer = yield from self._container.request(
                connection,
                "PUT",
                copy.name,
                headers=self._source(copy.source),
                accept=(*_GONE, _UNDER_WAY),
                pace=self._pace,
            )
            if answer.error_code in _GONE:
                return
            status = answer.header("x-ms-copy-status") or "success"
            if answer.error_code == _UNDER_WAY:
                status = "pending"
            wait_s = _FIRST_LOOK_S
            while status == "pending":
                yield wait_s
                wait_s = min(_LONGEST_LOOK_S, wait_s * 2)
                status = yield from self._status(copy.name, connection)
        except StoreError as error:
            if error.status is None:
                raise
            self._is_refused = True
            return
        if status == "success":
            self._tally.add(1, copy.bytes)

    def _source(self, name: str) -> dict[str, str]:
        """Say what is copied.

        A key or an identity opens both ends within one account; a SAS has to be in the source's
        URL as well. Copy Blob keeps that URL where each reader of the blob sees it, so a SAS goes
        with Put Blob From URL, which does not. Azurite has no such request, and asks for no SAS.
        """
        source = self._container.url_of(name)
        sas = self._container.authority.query()
        if sas and not self._container.address.is_loopback:
            return {"x-ms-blob-type": "BlockBlob", "x-ms-copy-source": f"{source}?{sas}"}
        return {"x-ms-copy-source": source}

    def _status(self, name: str, connection: Connection) -> Steps[str]:
        """How far a copy is, by the listing of its one name: the first that begins so."""
        answer = yield from self._container.request(
            connection,
            "GET",
            query={
                "comp": "list",
                "include": "copy",
                "maxresults": "1",
                "prefix": name,
                "restype": "container",
            },
            pace=self._pace,
        )
        found = _STATUS.search(answer.body)
        return found[1].decode("ascii", "replace") if found else "none"
