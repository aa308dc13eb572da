"""Runs requests to one container over azure-storage-blob's asyncio client, in the calling thread.

Connections, retries and answers are the SDK's and aiohttp's. Added here: a local store is spoken to
only where its listener is ours, an answer is bounded, and a store that stalls is given up.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from azure.core.exceptions import AzureError, HttpResponseError, ServiceResponseError
from azure.core.pipeline.policies import AsyncRetryPolicy
from azure.core.pipeline.transport import AioHttpTransport
from azure.storage.blob.aio import BlobServiceClient

from jobs.blobs.files import BLOCK_BYTES
from jobs.blobs.refusals import StoreError
from jobs.host.socket_owner import NotOurs, check_own_server

if TYPE_CHECKING:
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.client_reqrep import ClientRequest

    from jobs.blobs.container import Container

# With the waits between them about 15 s and about 75 s: a small request is what a person waits
# for, a transfer outlives a store that starts again.
CONTROL_TRIES, TRANSFER_TRIES = 6, 10
# A server that neither reads nor answers for so long counts as gone.
STALL_S = 60.0
CONNECT_S = 10.0
# Of an answer, which is kept in memory: a block, or a list of 50,000 of them.
LONGEST_BODY = max(16 << 20, BLOCK_BYTES)
# A store that is silent for so long is talked about.
_SILENCE_S = 3.0
_BACKOFF_S, _LONGEST_WAIT_S, _LONGEST_ASKED_S = 0.5, 15.0, 60.0
# Answers that a damaged request may have got: worth one more try.
_REFUSAL_TRIES = 2
_PASSING = (408, 429, 500, 502, 503, 504)
# Options of the storage SDK's own retries, which may go to a second region and know no Retry-After.
_OF_STORAGE_RETRIES = ("hosts", "location_mode", "retry_to_secondary")
# Moved on by whoever sees that the request under way makes progress.
_STALL: ContextVar[asyncio.Timeout] = ContextVar("stall")

Result = TypeVar("Result")


class Session:
    """One event loop and one client, for one thread at a time; closed by its owner."""

    def __init__(self, container: Container) -> None:
        self._container = container
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        # The SDK's own types are unknown in part.
        self._service: Any = None
        self._client: Any = None
        self._any_blob: Any = None
        self._connector: _Connector | None = None
        self._retries = _Retries(container.waiting)
        self._thread: ThreadPoolExecutor | None = None
        # Requests that went, each try counted, aiohttp's own as well.
        self.num_sent = 0

    @property
    def client(self) -> Any:
        """The SDK's client of the container, inside `run`."""
        assert self._client is not None
        return self._client

    @property
    def any_blob(self) -> Any:
        """The SDK's client of a blob that `at` names for each request, inside `run`."""
        assert self._any_blob is not None
        return self._any_blob

    def at(self, name: str) -> dict[str, Any]:
        """Give the arguments that send a request of `any_blob` to this blob.

        A client for each blob would cost a fifth of the CPU that a small file takes. The SDK's
        hook runs before the request is signed.
        """
        url = self._container.url_of(name)

        def address(request: Any) -> None:
            request.http_request.url = url

        return {"raw_request_hook": address}

    @property
    def service(self) -> Any:
        """The SDK's client of the account, inside `run`."""
        assert self._service is not None
        return self._service

    def run(self, work: Coroutine[Any, Any, Result], *, tries: int = CONTROL_TRIES) -> Result:
        """Do some requests, each tried so often, and give their result; blocks.

        Raises StoreError.
        """
        self._retries.allow(tries)
        # What a library leaves in our context would hold the traceback of an error, and so its owner.
        return self._apart(lambda: self._runner.run(self._opened(work), context=copy_context()))

    def close(self) -> None:
        """Close the connections and the loop."""
        self._apart(self._close)
        if self._thread is not None:
            self._thread.shutdown()

    def _apart(self, call: Callable[[], Result]) -> Result:
        """Do something that runs the loop; in a thread of our own where this thread runs one already.

        Files that one transfer is given may come from a listing of the same store, page by page.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return call()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1)
        return self._thread.submit(call).result()

    def _close(self) -> None:
        if self._service is not None:
            self._runner.run(self._end())
            self._service = self._client = self._any_blob = None
        self._runner.close()

    async def _opened(self, work: Coroutine[Any, Any, Result]) -> Result:
        if self._service is None:
            self._service = self._open()
            self._client = self._service.get_container_client(self._container.name)
            self._any_blob = self._client.get_blob_client("any")
        return await work

    async def _end(self) -> None:
        if self._connector is not None:
            self._connector.abort()
        await self._service.close()
        # What ends is told so in the loop's next round.
        await asyncio.sleep(0)

    def _open(self) -> BlobServiceClient:
        container = self._container
        azure = logging.getLogger("azure")
        if not azure.handlers:
            azure.addHandler(logging.NullHandler())  # what went wrong is said by our error
        counting = aiohttp.TraceConfig()
        counting.on_request_headers_sent.append(self._count)
        self._connector = _Connector(container)
        opened = aiohttp.ClientSession(
            connector=self._connector,
            response_class=_Response,
            cookie_jar=aiohttp.DummyCookieJar(),
            trace_configs=[counting],
            auto_decompress=False,
        )
        proxies = {"https": container.proxy} if container.proxy else {}
        return BlobServiceClient(
            container.url.rpartition("/")[0],
            credential=container.authority.credential(),
            transport=_Transport(
                session=opened, connection_timeout=CONNECT_S, read_timeout=STALL_S
            ),
            retry_policy=self._retries,
            permit_redirects=False,
            proxies=proxies,
            # A block comes in one answer, with an MD5 where the service gives one.
            max_single_get_size=BLOCK_BYTES,
            max_chunk_get_size=BLOCK_BYTES // 2,
            max_single_put_size=BLOCK_BYTES,
        )

    async def _count(self, *_: object) -> None:
        self.num_sent += 1

    async def ask(
        self, request: Callable[[], Awaitable[Result]], *, accept: tuple[str, ...] = ()
    ) -> Result:
        """Do one request, again where newer proof or a second try may help.

        Raises StoreError; at once for an error code of `accept`, which is an answer to the caller.
        """
        num_refusals = 0
        while True:
            try:
                return await request()
            except (AzureError, ValueError, HttpProcessingError) as error:
                failure = _explained(error)
            if failure.status is None or failure.status in _PASSING or failure.code in accept:
                raise failure
            refused = self._container.authority.refused
            if failure.status in (401, 403) and refused(failure.status):
                num_refusals = 0
            num_refusals += 1
            if num_refusals >= _REFUSAL_TRIES:
                raise failure


def count_progress() -> None:
    """Note that the request under way moves, inside of it."""
    stall = _STALL.get(None)
    if stall is not None and not stall.expired():
        stall.reschedule(asyncio.get_running_loop().time() + STALL_S)


def _explained(error: Exception) -> StoreError:
    """Make of the SDK's error ours."""
    answer: Any = getattr(error, "response", None)
    if isinstance(error, HttpResponseError) and answer is not None:
        given = answer.headers.get("x-ms-error-code") or getattr(error, "error_code", None)
        code = str(getattr(given, "value", given) or "")
        return StoreError(answer.status_code, code, code or f"{answer.status_code} {answer.reason}")
    inner = getattr(error, "inner_exception", None)
    text = str(inner or "") or str(error) or type(inner or error).__name__
    return StoreError(None, "", text)


class _Connector(aiohttp.TCPConnector):
    """Opens connections; in plain text only to a server of our own user, before a byte is sent."""

    def __init__(self, container: Container) -> None:
        # aiohttp's own context has the certificates of when it was loaded.
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            limit=0, ssl=ssl.create_default_context() if container.is_secure else True
        )
        self._check = not container.is_secure and sys.platform == "linux"
        # One that was closed with bytes still to send stays open until they are sent.
        self._made: WeakSet[asyncio.Transport] = WeakSet()

    def abort(self) -> None:
        """End the connections without waiting for what they have not sent yet."""
        for made in list(self._made):
            # asyncio's transport cannot be aborted once its socket is closed.
            opened = made.get_extra_info("socket")
            if opened is not None and opened.fileno() != -1:
                made.abort()

    async def _create_connection(
        self,
        req: ClientRequest,
        traces: list[Any],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 (as aiohttp has it)
    ) -> ResponseHandler:
        made = await super()._create_connection(req, traces, timeout)
        assert made.transport is not None
        self._made.add(made.transport)
        if self._check:
            try:
                check_own_server(made.transport.get_extra_info("socket"))
            except NotOurs as error:
                made.close()
                raise StoreError(None, "", str(error)) from error
            except ConnectionError:
                made.close()
                raise
        return made


class _Response(aiohttp.ClientResponse):
    """An answer of at most LONGEST_BODY bytes."""

    async def read(self) -> bytes:
        """Read it all. Raises ClientPayloadError where it is too long, or cut."""
        if self._body is None:
            body = bytearray()
            try:
                async for chunk in self.content.iter_any():
                    count_progress()
                    if len(body) + len(chunk) > LONGEST_BODY:
                        message = f"an answer of more than {LONGEST_BODY} bytes"
                        raise aiohttp.ClientPayloadError(message)
                    body += chunk
            except BaseException:
                self.close()
                raise
            self._body = bytes(body)
        return await super().read()


class _Transport(AioHttpTransport):
    """Reads each answer whole, so that a cut one is tried again like a lost one."""

    async def send(self, request: Any, *, stream: bool = False, **config: Any) -> Any:
        """Send a request and read its answer whole; raise after a stall of STALL_S."""
        del stream
        try:
            async with asyncio.timeout(STALL_S) as stall:
                _STALL.set(stall)
                return await AioHttpTransport.send(  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
                    self, request, stream=False, **config
                )
        except TimeoutError as error:
            message = f"no answer for {STALL_S:.0f} s"
            raise ServiceResponseError(message, error=error) from error
        except (HttpProcessingError, OSError) as error:
            raise ServiceResponseError(str(error), error=error) from error
        except AzureError as error:
            failure = getattr(request.data, "failure", None)
            if failure is not None:
                raise failure from error
            if isinstance(error.inner_exception, aiohttp.ClientConnectorCertificateError):
                # Another try would meet the same certificate.
                raise StoreError(None, "", str(error.inner_exception)) from error
            raise


class _Retries(AsyncRetryPolicy[Any, Any]):
    """The SDK's retries; says so, once an outage, where the store is waited for for long."""

    def __init__(self, waiting: Callable[[str], None]) -> None:
        super().__init__(retry_backoff_factor=_BACKOFF_S, retry_backoff_max=_LONGEST_WAIT_S)
        self._waiting = waiting
        self._fails_since: float | None = None
        self._is_told = False

    def allow(self, tries: int) -> None:
        """Have each request tried so often."""
        self.total_retries = self.connect_retries = tries - 1
        self.read_retries = self.status_retries = tries - 1

    async def send(self, request: Any) -> Any:
        """Send a request, again after answers and failures that may pass."""
        for option in _OF_STORAGE_RETRIES:
            request.context.options.pop(option, None)
        answer = await super().send(request)
        answer.http_response.location_mode = "primary"
        if answer.http_response.status_code not in _PASSING:
            self._fails_since, self._is_told = None, False
        return answer

    async def sleep(self, settings: dict[str, Any], transport: Any, response: Any = None) -> None:
        """Sleep before the next try, never in step with other requests."""
        del transport
        asked_s = self.get_retry_after(response) if response is not None else None
        wait_s = self.get_backoff_time(settings) * random.uniform(0.5, 1.0)
        wait_s = max(wait_s, min(asked_s or 0.0, _LONGEST_ASKED_S))
        self._tell(settings["history"], wait_s)
        await asyncio.sleep(wait_s)

    def _tell(self, history: list[Any], wait_s: float) -> None:
        now = time.monotonic()
        self._fails_since = self._fails_since or now
        is_long = now + wait_s - self._fails_since >= _SILENCE_S
        last = history[-1] if history else None
        error = getattr(last, "error", None)
        if isinstance(error, AzureError) and isinstance(error.inner_exception, TimeoutError):
            is_long = True  # nobody answered for many seconds already
        if is_long and not self._is_told:
            self._is_told = True
            answer = getattr(last, "http_response", None)
            self._waiting(_reason(error, answer))


def _reason(error: Exception | None, answer: Any) -> str:
    if error is not None:
        return _explained(error).text
    if answer is None:
        return "no answer"
    code = answer.headers.get("x-ms-error-code")
    return str(code or f"{answer.status_code} {answer.reason}")
