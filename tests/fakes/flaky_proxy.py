"""An HTTP proxy on loopback between a client and a real blob store, with what goes wrong between.

A plan is asked at the start of each request and gives the fault that this request meets, or None.
It may do anything else as well: kill the client, or the store.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import BinaryIO, Literal, Self
from urllib.parse import parse_qs, unquote, urlsplit

from tests.busy import HANG_S

PIECE_BYTES = 64 << 10
Kind = Literal["put", "block", "commit", "blocks", "get", "list", "other"]


@dataclass(kw_only=True)
class Seen:
    """One request, and what became of it so far; `status` is the store's answer."""

    number: int
    kind: Kind
    method: str
    name: str  # the blob's, within its container
    query: dict[str, str]
    headers: dict[str, str]
    body_bytes: int
    status: int | None = None
    is_answered: bool = False  # to the client, wholly; it may not have read all of it
    is_read: bool = False  # the client went on to its connection's next request


@dataclass(frozen=True, kw_only=True)
class Refuse:
    """Answer so, without asking the store."""

    status: int
    code: str = "ServerBusy"
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CutRequest:
    """End both connections after so many bytes of the request's body."""

    after_bytes: int


@dataclass(frozen=True, kw_only=True)
class CutAnswer:
    """Let the store do its work, and end the connection after so many bytes of its answer's body.

    With `after_bytes` None not even the head comes through.
    """

    after_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class Flip:
    """Invert one bit of a byte of the body, on its way up or down."""

    way: Literal["up", "down"]
    offset: int


@dataclass(frozen=True, kw_only=True)
class Late:
    """Let the answer come so much later."""

    delay_s: float


Fault = Refuse | CutRequest | CutAnswer | Flip | Late
Plan = Callable[[Seen], Fault | None]


class FlakyProxy:
    """Listens on 127.0.0.1:`port` until it is closed; `seen` holds all requests in order."""

    def __init__(self, store_port: int, plan: Plan = lambda _: None) -> None:
        self.plan = plan
        self.seen: list[Seen] = []
        self._store_port = store_port
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for each in self._open:
                _shut(each)
        for thread in self._threads:
            thread.join(HANG_S)

    def clear(self, plan: Plan = lambda _: None) -> list[Seen]:
        """Take another plan and forget what was seen; gives that."""
        with self._lock:
            before, self.seen = self.seen, []
            self.plan = plan
        return before

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            with self._lock:
                self._open.add(client)
                self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        # The client may be killed and the store may die: a connection then simply ends.
        with client, suppress(OSError, EOFError):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with socket.create_connection(("127.0.0.1", self._store_port)) as store:
                store.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._lock:
                    self._open.add(store)
                try:
                    with client.makefile("rb") as asked, store.makefile("rb") as answered:
                        last: Seen | None = None
                        while head := _read_head(asked):
                            if last is not None:
                                last.is_read = True
                            with self._lock:
                                last = _parse_request(head, len(self.seen))
                                self.seen.append(last)
                                plan = self.plan
                            if not _relay(client, store, asked, answered, head, last, plan):
                                break
                finally:
                    _shut(client)
                    with self._lock:
                        self._open -= {client, store}


def _relay(
    client: socket.socket,
    store: socket.socket,
    asked: BinaryIO,
    answered: BinaryIO,
    head: bytes,
    seen: Seen,
    plan: Plan,
) -> bool:
    """Pass one request and its answer on; False where the connection shall end."""
    fault = plan(seen)
    if isinstance(fault, Refuse):
        for _ in _pieces(asked, seen.body_bytes):
            pass
        client.sendall(_refusal(fault, with_body=seen.method != "HEAD"))
        seen.is_answered = True
        return True
    store.sendall(head)
    for piece in _changed(_pieces(asked, seen.body_bytes), fault, "up"):
        store.sendall(piece)
    if isinstance(fault, CutRequest):
        return False
    return _pass_answer(client, answered, seen, fault)


def _pass_answer(
    client: socket.socket, answered: BinaryIO, seen: Seen, fault: Fault | None
) -> bool:
    head = _read_head(answered)
    if head is None:
        return False
    seen.status = int(head.split(b" ", 2)[1])
    if isinstance(fault, Late):
        time.sleep(fault.delay_s)
    body = _answer_body(answered, head, seen)
    if isinstance(fault, CutAnswer) and fault.after_bytes is None:
        for _ in body:
            pass
        return False
    client.sendall(head)
    for piece in _changed(body, fault, "down"):
        client.sendall(piece)
    if isinstance(fault, CutAnswer):
        return False
    seen.is_answered = True
    return True


def _changed(pieces: Iterator[bytes], fault: Fault | None, way: str) -> Iterator[bytes]:
    """Give a body as the fault leaves it."""
    cut_at = None
    if isinstance(fault, CutRequest) and way == "up":
        cut_at = fault.after_bytes
    if isinstance(fault, CutAnswer) and way == "down":
        cut_at = fault.after_bytes
    flip_at = fault.offset if isinstance(fault, Flip) and fault.way == way else -1
    done = 0
    for whole in pieces:
        piece = whole
        if done <= flip_at < done + len(piece):
            damaged = bytearray(piece)
            damaged[flip_at - done] ^= 1 << (flip_at % 8)
            piece = bytes(damaged)
        if cut_at is not None and done + len(piece) >= cut_at:
            yield piece[: cut_at - done]
            return
        done += len(piece)
        yield piece


def _read_head(stream: BinaryIO) -> bytes | None:
    """Read to the empty line; None where the connection ended."""
    lines = bytearray()
    while line := stream.readline():
        lines += line
        if line == b"\r\n":
            return bytes(lines)
    return None


def _headers(head: bytes) -> dict[str, str]:
    lines = head.decode("latin-1").split("\r\n")[1:]
    pairs = (line.partition(":") for line in lines if line)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _parse_request(head: bytes, number: int) -> Seen:
    method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    parts = urlsplit(target)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    headers = _headers(head)
    name = unquote(parts.path).lstrip("/").split("/", 2)[2:]
    return Seen(
        number=number,
        kind=_kind(method, query.get("comp"), bool(name)),
        method=method,
        name=name[0] if name else "",
        query=query,
        headers=headers,
        body_bytes=int(headers.get("content-length", "0")),
    )


def _kind(method: str, what: str | None, is_blob: bool) -> Kind:
    if method == "PUT" and is_blob:
        kinds: dict[str | None, Kind] = {None: "put", "block": "block", "blocklist": "commit"}
        return kinds.get(what, "other")
    if method == "GET" and is_blob:
        return "get" if what is None else "blocks"
    return "list" if method == "GET" and what == "list" else "other"


def _pieces(stream: BinaryIO, num_bytes: int) -> Iterator[bytes]:
    while num_bytes > 0:
        piece = stream.read(min(num_bytes, PIECE_BYTES))
        if not piece:
            raise EOFError
        num_bytes -= len(piece)
        yield piece


def _answer_body(stream: BinaryIO, head: bytes, seen: Seen) -> Iterator[bytes]:
    """Give an answer's body as it comes over the wire, the framing of chunks included."""
    headers = _headers(head)
    if seen.method == "HEAD" or seen.status in (204, 304):
        return
    if headers.get("transfer-encoding", "").lower() != "chunked":
        yield from _pieces(stream, int(headers.get("content-length", "0")))
        return
    while True:
        size = stream.readline()
        yield size
        num_bytes = int(size, 16)
        yield from _pieces(stream, num_bytes + 2)
        if num_bytes == 0:
            return


def _refusal(fault: Refuse, *, with_body: bool) -> bytes:
    body = f"<?xml version='1.0'?><Error><Code>{fault.code}</Code><Message>-</Message></Error>"
    headers = {
        "x-ms-error-code": fault.code,
        "Content-Type": "application/xml",
        "Content-Length": str(len(body)),
        **fault.headers,
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    text = f"HTTP/1.1 {fault.status} Refused\r\n{lines}\r\n"
    return (text + body if with_body else text).encode()


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
