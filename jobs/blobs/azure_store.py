"""A container of Azure Storage, or of Azurite, as a BlobStore: blocking, over the SDK's asyncio client."""

from __future__ import annotations

import hashlib
import time
import weakref
from base64 import b64encode
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from jobs.blobs.authority import Identity, SharedKey
from jobs.blobs.container import Container
from jobs.blobs.files import BLOCK_BYTES, Blob, Copy, Incoming, Moved, Origin, Outgoing, Tally
from jobs.blobs.refusals import StoreError
from jobs.contracts.errors import EnvironmentFailure, LaunchError, NotFound

if TYPE_CHECKING:
    from jobs.blobs.session import Session

# What a read is answered where there is no such blob or range, and a listing's page.
_MISSING = ("BlobNotFound", "InvalidRange")
# What a conditional write is answered where the name is taken.
_TAKEN = ("BlobAlreadyExists", "ConditionNotMet")
# The store gives up to 5,000; with fewer the memory for a million stays that for a few.
PAGE_BLOBS = 2_000

Result = TypeVar("Result")


class AzureStore:
    """Read and write one container by the SDK. Several threads may call at once; each has its own loop."""

    def __init__(
        self, container: Container, explain: Callable[[StoreError], EnvironmentFailure]
    ) -> None:
        self._container = container
        self._explain = explain
        self._idle: list[Session] = []
        weakref.finalize(self, _close_all, self._idle)

    def list(self, prefix: str) -> Iterator[Blob]:
        """List the blobs below a prefix; ask for one page at a time."""
        marker: str | None = None
        while True:
            with self._session() as session:
                blobs, marker = session.run(_list_page(session, prefix, marker))
            yield from blobs
            # One page at a time in memory.
            blobs.clear()
            if marker is None:
                return

    def read(self, name: str) -> bytes | None:
        """Read a small blob whole; None if there is none."""

        async def whole(session: Session) -> bytes:
            client = session.client.get_blob_client(name)
            return await (await client.download_blob(max_concurrency=1)).readall()

        return self._ask(whole, accept=_MISSING)

    def create(self, name: str, content: bytes) -> bool:
        """Write a small blob by one request with If-None-Match; False if the name is taken."""
        md5 = b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode("ascii")
        num_sent = 0

        async def write(session: Session) -> bool:
            nonlocal num_sent
            client = session.client.get_blob_client(name)
            before = session.num_sent
            try:
                await client.upload_blob(
                    content, length=len(content), overwrite=False, headers={"Content-MD5": md5}
                )
            finally:
                num_sent = session.num_sent - before
            return True

        if self._ask(write, accept=_TAKEN):
            return True
        # The answer to a write that was done may be lost, and the next try then finds its own.
        return num_sent > 1 and self.read(name) == content

    def content(self, name: str) -> Iterator[bytes]:
        """Yield a blob a block at a time, all of one version."""
        at, etag, size = 0, None, 1
        while at < size:
            piece = self._range(name, at, BLOCK_BYTES, etag, accept=_MISSING)
            if piece is None and not at:
                if self.read(name) is not None:
                    return  # it is empty
                message = f"the store has no `{name}`"
                raise NotFound(message, hint="launch data ls")
            if piece is None or (at and not piece[0]):
                message = f"`{name}` went away, or changed, while it was read"
                raise EnvironmentFailure(message, hint="start the command again")
            content, etag, size = piece
            yield content
            at += len(content)
            if not content:
                return

    def read_range(
        self, name: str, start: int, end: int, *, etag: str | None = None
    ) -> bytes | None:
        """Read a range of a blob; None if it is not there, or not of this version."""
        accept = (*_MISSING, "ConditionNotMet")
        piece = self._range(name, start, end - start, etag, accept=accept)
        if piece is None:
            return None
        if len(piece[0]) > end - start:
            raise self._explain(StoreError(None, "", f"an answer of more than {end - start} bytes"))
        return piece[0]

    def delete(self, names: Iterable[str]) -> None:
        """Delete blobs; one that is gone is fine."""
        from jobs.blobs.copying import Deletion

        self._move(lambda session: Deletion(session, names), Tally(_ignore))

    def copy(self, copies: Iterable[Copy], moved: Moved, *, origin: Origin | None = None) -> None:
        """Copy blobs inside the store, or from another container on Azure."""
        from jobs.blobs.copying import Copying

        if origin is not None and self._container.is_loopback:
            return  # no service copies between Azure and this machine
        tally = Tally(moved)
        self._move(lambda session: Copying(session, self._container, copies, tally, origin), tally)

    def send(
        self, files: Iterable[Outgoing], moved: Moved, *, max_bytes_per_s: int | None = None
    ) -> None:
        """Send files, each checked by its MD5."""
        from jobs.blobs.upload import send

        tally = Tally(moved)
        self._transfer(lambda session: send(session, files, tally, max_bytes_per_s))

    def receive(
        self,
        files: Iterable[Incoming],
        moved: Moved,
        *,
        max_bytes_per_s: int | None = None,
        arrived: Callable[[Incoming], None] = lambda _: None,
    ) -> None:
        """Receive blobs into files, each checked before it gets its name."""
        from jobs.blobs.download import receive

        tally = Tally(moved)
        self._transfer(lambda session: receive(session, files, tally, max_bytes_per_s, arrived))

    def as_origin(self, valid_s: int) -> Origin | None:
        """Sign a SAS that another store on Azure reads this one with; None on this machine."""
        if self._container.is_loopback:
            return None
        return Origin(url=self._container.url, sas=self.read_only_sas("", valid_s))

    def read_only_sas(self, prefix: str, valid_s: int) -> str:
        """Sign a SAS of the whole container: only hierarchical accounts know narrower ones."""
        del prefix
        from datetime import UTC, datetime

        from azure.storage.blob import generate_container_sas

        now = time.time()
        authority, host = self._container.authority, self._container.host
        # Machines' clocks differ.
        start, end = (datetime.fromtimestamp(each, UTC) for each in (now - 300, now + valid_s))
        proof: dict[str, Any]
        if isinstance(authority, SharedKey):
            account, proof = authority.account, {"account_key": authority.key}
        elif isinstance(authority, Identity):
            account = host.partition(".")[0]
            proof = {"user_delegation_key": self._delegation_key(start, end)}
        else:
            message = "a SAS cannot create another SAS"
            raise LaunchError(
                message, hint="log in as an identity that may read the store: az login"
            )
        return generate_container_sas(
            account, self._container.name, permission="rl", start=start, expiry=end, **proof
        )

    # --- How ------------------------------------------------------------------------------------

    def _delegation_key(self, start: Any, end: Any) -> Any:
        """Get a key that the store issues to an identity for a limited time."""

        async def borrow(session: Session) -> Any:
            return await session.service.get_user_delegation_key(start, end)

        try:
            return self._ask(borrow)
        except EnvironmentFailure as error:
            message = f"the store https://{self._container.host} gives no key for a SAS: {error}"
            hint = "az login, with an identity that has the role Storage Blob Data Reader"
            raise EnvironmentFailure(message, hint=hint) from error

    def _range(
        self, name: str, start: int, length: int, etag: str | None, *, accept: tuple[str, ...]
    ) -> tuple[bytes, str | None, int] | None:
        """Read a piece; gives it with the blob's version and size, None for an answer of `accept`."""
        from jobs.blobs.download import conditions_of

        async def read(session: Session) -> tuple[bytes, str | None, int]:
            client: Any = session.client.get_blob_client(name)
            found: Any = await client.download_blob(
                offset=start, length=length, max_concurrency=1, **conditions_of(etag)
            )
            content = await found.readall()
            size = (found.properties.content_range or "/0").rpartition("/")[2]
            return content, found.properties.etag, int(size)

        return self._ask(read, accept=accept)

    def _ask(
        self,
        request: Callable[[Session], Awaitable[Result]],
        *,
        accept: tuple[str, ...] = (),
    ) -> Result | None:
        """Do one small request, blocking; None for an error code of `accept`."""
        try:
            with self._session(accept) as session:
                return session.run(session.ask(lambda: request(session), accept=accept))
        except StoreError:
            return None

    def _move(self, jobs: Callable[[Session], Any], tally: Tally) -> None:
        from jobs.blobs.concurrency import run_all

        self._transfer(lambda session: run_all(jobs(session), tally.tell))

    def _transfer(self, work: Callable[[Session], Coroutine[Any, Any, None]]) -> None:
        from jobs.blobs.session import TRANSFER_TRIES

        with self._session() as session:
            session.run(work(session), tries=TRANSFER_TRIES)

    @contextmanager
    def _session(self, accept: tuple[str, ...] = ()) -> Generator[Session]:
        """Lend a session, with its open connections.

        One that failed is closed: it may hold the error, and so whoever was lent it. Raises
        StoreError for an error code of `accept`.
        """
        from jobs.blobs.session import Session

        try:
            session = self._idle.pop()
        except IndexError:
            session = Session(self._container)
        try:
            yield session
        except StoreError as error:
            session.close()
            if error.code in accept:
                raise
            raise self._explain(error) from error
        except BaseException:
            session.close()
            raise
        self._idle.append(session)


async def _list_page(
    session: Session, prefix: str, marker: str | None
) -> tuple[list[Blob], str | None]:
    async def ask() -> tuple[list[Blob], str | None]:
        found = session.client.list_blobs(
            name_starts_with=prefix or None, results_per_page=PAGE_BLOBS
        )
        pages: Any = found.by_page(marker)
        try:
            blobs = [_blob(each) async for each in await anext(pages)]
        except (AttributeError, TypeError) as error:
            raise StoreError(None, "", "its answer is not a list of blobs") from error
        return blobs, pages.continuation_token or None

    return await session.ask(ask)


def _blob(found: Any) -> Blob:
    md5 = found.content_settings.content_md5
    return Blob(
        name=found.name,
        bytes=found.size or 0,
        md5=bytes(md5) if md5 else None,
        etag=(found.etag or "").strip('"'),
    )


def _close_all(sessions: list[Session]) -> None:
    for session in sessions:
        session.close()


def _ignore(_files: int, _bytes: int, _found: int = 0, /) -> None:
    pass
