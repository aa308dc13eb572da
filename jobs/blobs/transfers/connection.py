"""One HTTP/1.1 connection to the store: sends a request and reads its answer, as a generator.

A generator yields what it waits for, READ, WRITE or a number of seconds, and is resumed when it is
there; so one thread drives hundreds of connections (crew.py) or just one (`drive`).
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import TypeVar

from msgspec import Struct

from jobs.blobs.transfers.address import Address
from jobs.blobs.transfers.pace import Bandwidth
from jobs.blobs.transfers.portable import READ, WRITE, read_at, send_two
from jobs.blobs.transfers.sinks import LONGEST_BODY, Sink, bounded

# A server that neither reads nor answers for so long counts as gone.
STALL_S = 60.0
CONNECT_S = 10.0
BUFFER_BYTES = 256 << 10
# What is handed to the kernel at once where bandwidth is capped: smooth enough for 1 MB/s.
_CAPPED_BYTES = 32 << 10
_LONGEST_HEAD = 64 << 10

Result = TypeVar("Result")
Steps = Generator[int | float, None, Result]


class Cut(Exception):
    """The connection failed, or what came over it is no HTTP.

    `was_reused`: it was not new. `is_final`: another would fail as well.
    """

    def __init__(self, reason: Exception, *, was_reused: bool) -> None:
        super().__init__(str(reason) or type(reason).__name__)
        self.was_reused = was_reused
        # By name: plain HTTP is spared the loading of ssl.
        self.is_final = type(reason).__name__ in ("SSLCertVerificationError", "NotOurs")


class WrongLength(Exception):
    """An answer of another length than was asked for."""


class Unreadable(Exception):
    """The file being sent cannot be read."""


class Shortened(Exception):
    """The file became shorter while it was being sent."""


class FileRange(Struct, frozen=True, kw_only=True):
    """A piece of an open file as a request's body, read again for each try."""

    descriptor: int
    offset: int
    length: int


class Answer(Struct, frozen=True, kw_only=True):
    """What the store said, at last; `body` is empty where a sink took it."""

    status: int
    head: bytes
    body: bytes
    num_tries: int = 1

    def header(self, name: str) -> str | None:
        """Give a header's value; `name` in lower case."""
        return _header(self.head, self.head.lower(), name.encode())

    @property
    def error_code(self) -> str:
        """The store's name for what went wrong, as `BlobNotFound`; empty if it gave none."""
        code = self.header("x-ms-error-code")
        if code is None and b"<Code>" in self.body:
            said = self.body.partition(b"<Code>")[2].partition(b"</Code>")[0]
            code = said.decode("ascii", "replace")
        return code or ""


def _ignore(_number: int) -> None:
    pass


class Connection:
    """Opened at the first request and kept; opened anew after a failure.

    `opened` and `closing` hear of each socket, `count` of bytes that went or came. `buffer` may
    be shared by all connections of a thread: nothing stays in it while a generator waits.
    """

    def __init__(
        self,
        address: Address,
        *,
        buffer: memoryview | None = None,
        bandwidth: Bandwidth | None = None,
        opened: Callable[[int], None] = _ignore,
        closing: Callable[[int], None] = _ignore,
        count: Callable[[int], None] = _ignore,
    ) -> None:
        self._address = address
        self._buffer = buffer or memoryview(bytearray(BUFFER_BYTES))
        self._bandwidth = bandwidth
        self._opened = opened
        self._closing = closing
        self._count = count
        self._socket: socket.socket | None = None
        self._is_used = False
        # How long to wait for what it does now.
        self.patience_s = CONNECT_S

    @property
    def socket(self) -> socket.socket | None:
        """What to wait on, while it is open."""
        return self._socket

    def close(self) -> None:
        """Close the socket, if there is one; the next request opens another."""
        if self._socket is not None:
            self._closing(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def request(
        self, head: bytes, body: bytes | FileRange, sink: Sink | None, expected: int | None
    ) -> Steps[Answer]:
        """Exchange one request for its answer; `sink` takes a good answer's body.

        `expected` is how long a good body must be. Raises Cut, and leaves no open socket then.
        """
        was_reused = self._socket is not None and self._is_used
        try:
            if self._socket is None:
                yield from self._open()
            assert self._socket is not None
            try:
                yield from self._send(self._socket, head, body)
            except (BrokenPipeError, ConnectionResetError):
                # A store that refuses may answer and hang up before it has read the body.
                answer = yield from self._receive(self._socket, sink, expected)
                if answer.status < 400:
                    raise
                self.close()
                return answer
            answer = yield from self._receive(self._socket, sink, expected)
        except (OSError, ValueError) as error:
            self.close()
            raise Cut(error, was_reused=was_reused) from error
        except BaseException:
            self.close()
            raise
        self._is_used = True
        return answer

    def _open(self) -> Steps[None]:
        self._is_used = False
        self.patience_s = CONNECT_S
        raw = yield from self._address.connect(self._keep)
        self.patience_s = STALL_S
        context = self._address.tls
        if context is None:
            return
        # Wrapping detaches the plain socket, whose descriptor goes on under the same number.
        secure = context.wrap_socket(
            raw, server_hostname=self._address.host, do_handshake_on_connect=False
        )
        self._socket = secure
        while True:
            try:
                secure.do_handshake()
            except self._address.wants_read:
                yield READ
            except self._address.wants_write:
                yield WRITE
            else:
                return

    def _keep(self, opened: socket.socket) -> None:
        self._socket = opened
        self._opened(opened.fileno())

    # --- Sending --------------------------------------------------------------------------------

    def _send(self, to: socket.socket, head: bytes, body: bytes | FileRange) -> Steps[None]:
        if isinstance(body, bytes):
            yield from self._send_bytes(to, head + body)
            return
        chunk_bytes = BUFFER_BYTES if self._bandwidth is None else _CAPPED_BYTES
        at, end = body.offset, body.offset + body.length
        chunk = _read(body.descriptor, min(end - at, chunk_bytes), at)
        at += len(chunk)
        yield from self._send_bytes(to, head, chunk)
        while at < end:
            chunk = _read(body.descriptor, min(end - at, chunk_bytes), at)
            at += len(chunk)
            yield from self._send_bytes(to, chunk)

    def _send_bytes(self, to: socket.socket, first: bytes, second: bytes = b"") -> Steps[None]:
        if self._bandwidth is not None and (wait_s := self._bandwidth.take(len(second or first))):
            yield wait_s
        total = len(first) + len(second)
        sent = 0
        if self._address.tls is None:
            with suppress(BlockingIOError):
                sent = send_two(to, first, second)
            self._count(sent)
            if sent == total:
                return
        rest = memoryview(first + second if second else first)[sent:]
        while rest:
            try:
                sent = to.send(rest)
                rest = rest[sent:]
                self._count(sent)
            except self._address.wants_write:
                yield WRITE
            except self._address.wants_read:
                yield READ

    # --- Receiving ------------------------------------------------------------------------------

    def _receive(
        self, source: socket.socket, sink: Sink | None, expected: int | None
    ) -> Steps[Answer]:
        head, rest = yield from self._receive_head(source)
        status = int(head[9:12])
        if status >= 300:
            sink = expected = None
        lower = head.lower()
        length = _header(head, lower, b"content-length")
        encoding = _header(head, lower, b"transfer-encoding")
        body = bytearray()
        given = sink or bounded(body, LONGEST_BODY)
        num_taken = 0

        def take(chunk: memoryview) -> None:
            nonlocal num_taken
            num_taken += len(chunk)
            given(chunk)

        is_over = b"connection: close" in lower or head.startswith(b"HTTP/1.0")
        if encoding == "chunked":
            yield from self._receive_chunked(source, rest, take)
        elif status in (204, 304):
            pass
        elif length is not None:
            _check_length(int(length), expected)
            yield from self._receive_body(source, rest, int(length), take)
        elif is_over:
            yield from self._receive_to_end(source, rest, take)
        else:
            message = "an answer without a length"
            raise ValueError(message)
        _check_length(num_taken, expected)  # not every answer says before how long it is
        if is_over:
            self.close()
        return Answer(status=status, head=head, body=bytes(body))

    def _receive_head(self, source: socket.socket) -> Steps[tuple[bytes, bytes]]:
        """Give an answer's head, and what came of its body with it."""
        got = b""
        while True:
            while (end := got.find(b"\r\n\r\n")) < 0 and len(got) < _LONGEST_HEAD:
                got += bytes((yield from self._some(source)))
            if end < 0 or not got.startswith(b"HTTP/1."):
                message = "the answer is no HTTP"
                raise ValueError(message)
            head, got = got[: end + 2], got[end + 4 :]
            if head[9:10] != b"1":  # 100 Continue and its like announce the real one
                return head, got

    def _receive_body(
        self, source: socket.socket, rest: bytes, length: int, take: Sink
    ) -> Steps[None]:
        if len(rest) > length:
            message = "the answer is longer than it says"
            raise ValueError(message)
        if rest:
            take(memoryview(rest))
        left = length - len(rest)
        while left:
            some = yield from self._some(source, left)
            left -= len(some)
            take(some)

    def _receive_chunked(self, source: socket.socket, rest: bytes, take: Sink) -> Steps[None]:
        got = bytearray(rest)
        size = -1
        while size:
            while (end := got.find(b"\r\n")) < 0 and len(got) < _LONGEST_HEAD:
                got += yield from self._some(source)
            size = left = int(got[:end].partition(b";")[0], 16) if end >= 0 else -1
            if size < 0:
                message = "a piece of the answer does not say how long it is"
                raise ValueError(message)
            del got[: end + 2]
            while left:
                piece = bytes(got[:left]) or bytes((yield from self._some(source, left)))
                del got[: len(piece)]
                left -= len(piece)
                take(memoryview(piece))
            while len(got) < 2:
                got += yield from self._some(source)
            if not got.startswith(b"\r\n"):
                message = "a piece of the answer is longer than it says"
                raise ValueError(message)
            del got[:2]

    def _receive_to_end(self, source: socket.socket, rest: bytes, take: Sink) -> Steps[None]:
        while rest:
            take(memoryview(rest))
            try:
                rest = bytes((yield from self._some(source)))
            except ConnectionError:
                return

    def _some(self, source: socket.socket, most: int = BUFFER_BYTES) -> Steps[memoryview]:
        """Give what is there, at least a byte, in the shared buffer: use it before waiting."""
        if self._bandwidth is not None:
            most = min(most, _CAPPED_BYTES)
        while True:
            try:
                got = source.recv_into(self._buffer, min(most, BUFFER_BYTES))
            except self._address.wants_read:
                yield READ
                continue
            except self._address.wants_write:
                yield WRITE
                continue
            if not got:
                message = "it closed the connection"
                raise ConnectionResetError(message)
            self._count(got)
            if self._bandwidth is not None:
                # Waits before the bytes are taken, not after: the buffer is shared.
                some = bytes(self._buffer[:got])
                if wait_s := self._bandwidth.take(got):
                    yield wait_s
                return memoryview(some)
            return self._buffer[:got]


def drive(steps: Steps[Result], connection: Connection) -> Result:
    """Run one generator to its end, blocking."""
    try:
        wanted = next(steps)
        while True:
            if isinstance(wanted, float):
                time.sleep(wanted)
                wanted = next(steps)
                continue
            assert connection.socket is not None
            with selectors.DefaultSelector() as selector:
                selector.register(connection.socket, wanted)
                is_ready = bool(selector.select(connection.patience_s))
            if is_ready:
                wanted = next(steps)
            else:
                wanted = steps.throw(TimeoutError(f"no answer for {connection.patience_s:.0f} s"))
    except StopIteration as end:
        return end.value


def _read(descriptor: int, length: int, offset: int) -> bytes:
    try:
        chunk = read_at(descriptor, length, offset)
    except OSError as error:
        raise Unreadable(error.strerror) from error
    if length and not chunk:
        raise Shortened
    return chunk


def _check_length(length: int, expected: int | None) -> None:
    if expected is not None and length != expected:
        message = f"an answer of {length} bytes, not of {expected}"
        raise WrongLength(message)


def _header(head: bytes, lower: bytes, name: bytes) -> str | None:
    start = lower.find(b"\r\n" + name + b":")
    if start < 0:
        return None
    start += len(name) + 3
    return head[start : head.index(b"\r\n", start)].strip().decode("latin-1")
