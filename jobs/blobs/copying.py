"""Copies blobs inside the store or between stores, none through this machine; deletes blobs.

A copy is a favour of the store. What it refuses is left out, and whoever asked lists and sends it.
The rules: https://learn.microsoft.com/rest/api/storageservices/copy-blob and .../put-blob-from-url
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any
from urllib.parse import quote

from jobs.blobs.authority import Sas
from jobs.blobs.concurrency import Job
from jobs.blobs.container import Container
from jobs.blobs.files import Copy, Origin, Tally
from jobs.blobs.refusals import StoreError
from jobs.blobs.session import Session

# Answers that say something of one blob only; after any other no more copies are tried.
_GONE = ("BlobNotFound", "CannotVerifyCopySource")
# An earlier try, cut off, left a copy to this name that goes on.
_UNDER_WAY = "PendingCopyOperation"
_FIRST_LOOK_S, _LONGEST_LOOK_S = 0.25, 5.0


class Copying:
    """The jobs of one `copy`."""

    def __init__(
        self,
        session: Session,
        container: Container,
        copies: Iterable[Copy],
        tally: Tally,
        origin: Origin | None = None,
    ) -> None:
        self._session = session
        self._container = container
        self._copies: Iterator[Copy] = iter(copies)
        self._tally = tally
        self._origin = origin
        self._is_refused = False

    def next_job(self) -> Job | None:
        """Return the next copy to start; None if none is left."""
        copy = None if self._is_refused else next(self._copies, None)
        return None if copy is None else partial(self._copy, copy)

    async def _copy(self, copy: Copy) -> None:
        try:
            status = await self._begin(copy)
            wait_s = _FIRST_LOOK_S
            while status == "pending":
                await asyncio.sleep(wait_s)
                wait_s = min(_LONGEST_LOOK_S, wait_s * 2)
                status = await self._status(copy.name)
        except StoreError as error:
            if error.status is None:
                raise
            self._is_refused = self._is_refused or error.code not in _GONE
            return
        if status == "success":
            self._tally.add(1, copy.bytes)

    async def _begin(self, copy: Copy) -> str:
        """Ask for a copy; gives its status.

        From another container only Put Blob From URL copies, which compares the content's MD5.
        Within one, a key or an identity opens both ends; a SAS has to be in the source's URL as well. Copy Blob keeps that URL where each reader of the blob sees it, so a SAS goes
        with Put Blob From URL, which does not. Azurite has no such request, and asks for no SAS.
        """
        client = self._session.client.get_blob_client(copy.name)
        source = self._container.url_of(copy.source)
        authority = self._container.authority

        async def ask() -> dict[str, Any]:
            if self._origin is not None:
                await client.upload_blob_from_url(
                    f"{self._origin.url}/{quote(copy.source)}?{self._origin.sas}",
                    overwrite=True,
                    **({"source_content_md5": bytearray(copy.md5)} if copy.md5 else {}),
                )
                return {}
            if isinstance(authority, Sas) and not self._container.is_loopback:
                await client.upload_blob_from_url(f"{source}?{authority.token}", overwrite=True)
                return {}
            return await client.start_copy_from_url(source)

        try:
            answer = await self._session.ask(ask, accept=(*_GONE, _UNDER_WAY))
        except StoreError as error:
            if error.code == _UNDER_WAY:
                return "pending"
            raise
        return str(answer.get("copy_status") or "success")

    async def _status(self, name: str) -> str:
        client = self._session.client.get_blob_client(name)
        found = await self._session.ask(client.get_blob_properties)
        return str(found.copy.status or "none")


class Deletion:
    """The jobs of one `delete`."""

    def __init__(self, session: Session, names: Iterable[str]) -> None:
        self._session = session
        self._names: Iterator[str] = iter(names)

    def next_job(self) -> Job | None:
        """Return the next deletion; None if none is left."""
        name = next(self._names, None)
        return None if name is None else partial(self._delete, name)

    async def _delete(self, name: str) -> None:
        client = self._session.client.get_blob_client(name)
        try:
            await self._session.ask(client.delete_blob, accept=("BlobNotFound",))
        except StoreError as error:
            if error.code != "BlobNotFound":
                raise
