"""A container of Azure Storage, or of Azurite, as a BlobStore."""

from __future__ import annotations

import hashlib
import time
import weakref
from base64 import b64encode
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from jobs.blobs.credentials import Tokens
from jobs.blobs.transfers.authority import Identity, SharedKey
from jobs.blobs.transfers.connection import Answer, Connection, Steps, drive
from jobs.blobs.transfers.container import Container, StoreError
from jobs.blobs.transfers.copying import Copy, Copying
from jobs.blobs.transfers.crew import Crew, Jobs
from jobs.blobs.transfers.deletion import Deletion
from jobs.blobs.transfers.download import Download
from jobs.blobs.transfers.files import BLOCK_BYTES, Incoming, Moved, Outgoing, Tally
from jobs.blobs.transfers.listing import Blob, list_page
from jobs.blobs.transfers.open_files import most_requests
from jobs.blobs.transfers.pace import Pace
from jobs.blobs.transfers.sinks import Sink, bounded
from jobs.blobs.transfers.upload import Upload
from jobs.contracts.errors import EnvironmentFailure, LaunchError, NotFound

# What a read is answered where there is no such blob or range.
_MISSING = ("BlobNotFound", "InvalidRange")
# What a conditional write is answered where the name is taken.
_TAKEN = ("BlobAlreadyExists", "ConditionNotMet")

Result = TypeVar("Result")
Request = Callable[[Connection], Steps[Result]]


class AzureStore:
    """See BlobStore. Its methods may run in several threads at once; each moves in its own."""

    def __init__(
        self, container: Container, name: str, explain: Callable[[StoreError], EnvironmentFailure]
    ) -> None:
        self._container = container
        self._name = name
        self._explain = explain
        self._idle: list[Connection] = []
        weakref.finalize(self, _close_all, self._idle)

    def list(self, prefix: str) -> Iterator[Blob]:
        """See BlobStore; asks for one page at a time."""
        marker: str | None = None
        while True:
            page = self._ask(partial(list_page, self._container, prefix=prefix, marker=marker))
            marker = page.marker
            yield from page.blobs
            # One page at a time in memory.
            page.blobs.clear()
            if marker is None:
                return

    def read(self, name: str) -> bytes | None:
        """See BlobStore."""
        answer = self._ask(self._get(name, {}))
        return answer.body if answer.status == 200 else None

    def create(self, name: str, content: bytes) -> bool:
        """See BlobStore; one request with If-None-Match."""
        headers = {
            "content-md5": b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode(),
            "if-none-match": "*",
            "x-ms-blob-type": "BlockBlob",
        }
        request = self._container.request
        answer = self._ask(
            lambda connection: request(
                connection, "PUT", name, headers=headers, body=content, accept=_TAKEN
            )
        )
        # The answer to a write that was done may be lost, and the next try then finds its own.
        return answer.status == 201 or (answer.num_tries > 1 and self.read(name) == content)

    def content(self, name: str) -> Iterator[bytes]:
        """See BlobStore; a block at a time, all of one version."""
        at, headers = 0, dict[str, str]()
        while True:
            headers["x-ms-range"] = f"bytes={at}-{at + BLOCK_BYTES - 1}"
            answer = self._ask(self._get(name, headers))
            if answer.error_code == "BlobNotFound":
                message = f"the store has no `{name}`"
                raise NotFound(message, hint="launch data ls")
            if answer.error_code == "InvalidRange":
                return  # it is empty
            yield answer.body
            at += len(answer.body)
            headers["if-match"] = answer.header("etag") or "*"
            if at >= int((answer.header("content-range") or "/0").rpartition("/")[2]):
                return

    def read_range(
        self, name: str, start: int, end: int, *, etag: str | None = None
    ) -> bytes | None:
        """See BlobStore."""
        headers = {"x-ms-range": f"bytes={start}-{end - 1}"}
        if etag is not None:
            headers["if-match"] = etag if etag.startswith('"') else f'"{etag}"'
        content = bytearray()

        def begin() -> Sink:
            content.clear()
            return bounded(content, end - start)

        answer = self._ask(self._get(name, headers, (*_MISSING, "ConditionNotMet"), sink=begin))
        return bytes(content) if answer.status < 300 else None

    def delete(self, names: Iterable[str]) -> None:
        """See BlobStore."""
        pace = Pace(most_requests())
        self._run(Deletion(self._container, names, pace), pace, lambda: None, None)

    def copy(self, copies: Iterable[Copy], moved: Moved) -> None:
        """See BlobStore."""
        pace, tally = Pace(most_requests()), Tally(moved)
        self._run(Copying(self._container, copies, tally, pace), pace, tally.tell, None)

    def send(
        self, files: Iterable[Outgoing], moved: Moved, *, max_bytes_per_s: int | None = None
    ) -> None:
        """See BlobStore."""
        pace, tally = Pace(most_requests()), Tally(moved)
        upload = Upload(self._container, files, tally, pace)
        try:
            self._run(upload, pace, tally.tell, max_bytes_per_s)
        finally:
            upload.close()

    def receive(
        self, files: Iterable[Incoming], moved: Moved, *, max_bytes_per_s: int | None = None
    ) -> None:
        """See BlobStore."""
        pace, tally = Pace(most_requests()), Tally(moved)
        download = Download(self._container, files, tally, pace)
        try:
            self._run(download, pace, tally.tell, max_bytes_per_s)
            download.sweep()
        finally:
            download.close()

    def read_only_sas(self, prefix: str, valid_s: int) -> str:
        """See BlobStore; of the whole container: only hierarchical accounts know narrower ones."""
        del prefix
        now = time.time()
        authority = self._container.authority
        if isinstance(authority, SharedKey):
            return authority.container_sas(self._name, "rl", _iso(now + valid_s))
        if isinstance(authority, Identity):
            return _delegated_sas(self._container, self._name, authority.tokens, now, valid_s)
        message = "a SAS cannot make another one"
        raise LaunchError(message, hint="use an identity that may read the store: az login")

    # --- How ------------------------------------------------------------------------------------

    def _get(
        self,
        name: str,
        headers: dict[str, str],
        accept: tuple[str, ...] = _MISSING,
        sink: Callable[[], Sink] | None = None,
    ) -> Request[Answer]:
        return lambda connection: self._container.request(
            connection, "GET", name, headers=headers, accept=accept, sink=sink
        )

    def _ask(self, request: Request[Result]) -> Result:
        """Do one small request over a connection of ours, blocking."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = Connection(self._container.address)
        try:
            with self._explained():
                result = drive(request(connection), connection)
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        return result

    def _run(
        self, jobs: Jobs, pace: Pace, tell: Callable[[], None], max_bytes_per_s: int | None
    ) -> None:
        crew = Crew(self._container.address, pace, max_bytes_per_s=max_bytes_per_s)
        with self._explained():
            crew.run(jobs, tell)

    @contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except StoreError as error:
            raise self._explain(error) from error


def _close_all(connections: list[Connection]) -> None:
    for connection in connections:
        connection.close()


def _iso(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


class _Handed:
    """A credential for Azure's SDK that gives the token which we have."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def get_token(self, *scopes: str, **_: object) -> Any:
        """See azure.core.credentials.TokenCredential."""
        from azure.core.credentials import AccessToken

        token = self._tokens.header(scopes[0]).removeprefix("Bearer ")
        return AccessToken(token, int(time.time()) + 60)


def _delegated_sas(
    container: Container, name: str, tokens: Tokens, now: float, valid_s: int
) -> str:
    """Sign by a key that the store lends to an identity for so long."""
    from datetime import UTC, datetime

    from azure.core.exceptions import AzureError
    from azure.storage.blob import BlobServiceClient, generate_container_sas

    address = container.address
    # Machines' clocks differ.
    start = datetime.fromtimestamp(now - 300, UTC)
    end = datetime.fromtimestamp(now + valid_s, UTC)
    try:
        credential: Any = _Handed(tokens)
        service = BlobServiceClient(f"https://{address.name}", credential=credential)
        key = service.get_user_delegation_key(start, end)
    except AzureError as error:
        message = f"the store https://{address.name} lends no key for a SAS: {error.message}"
        hint = "az login, with an identity that has the role Storage Blob Data Reader"
        raise EnvironmentFailure(message, hint=hint) from error
    return generate_container_sas(
        address.host.partition(".")[0],
        name,
        user_delegation_key=key,
        permission="rl",
        start=start,
        expiry=end,
    )
