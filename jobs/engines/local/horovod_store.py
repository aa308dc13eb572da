"""Horovod's rendezvous: a store of bytes by path over HTTP, on loopback, for one gang of our user.

GET gives 404 until the key is there, PUT stores, DELETE removes. What is stored is never looked
into: Horovod's own launcher listens on every interface and unpickles what anybody PUT
(CVE-2024-10190, CVE-2026-31234). Sizes, counts and connections are bounded, and whom the kernel
does not know for a process of our user is hung up on: who rewrites addresses sits between ranks.
"""

from __future__ import annotations

import selectors
import socket
import threading

from jobs.contracts.errors import EnvironmentFailure
from jobs.engines.local.launchers import LOOPBACK
from jobs.host.socket_owner import is_own_peer, listener_owner

MAX_HEAD_BYTES = 8 << 10
MAX_VALUE_BYTES = 1 << 20
MAX_KEYS = 1 << 16
MAX_CONNECTIONS = 4096


class KeyValueStore:
    """The bytes by path; a finished scope is forgotten when Horovod deletes it."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """Status and body for one request."""
        if method == "GET":
            value = self._values.get(path)
            return (404, b"") if value is None else (200, value)
        if method == "PUT":
            if path not in self._values and len(self._values) >= MAX_KEYS:
                return 507, b""
            self._values[path] = body
            return 200, b""
        if method == "DELETE":
            self._values.pop(path, None)
            return 200, b""
        return 405, b""


class _Connection:
    """One client: what it sent so far and what it is still to get."""

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        self.received = bytearray()
        self.to_send = b""
        self.is_closing = False


class RendezvousServer:
    """Serves one store from a thread of its own until `close`.

    Raises EnvironmentFailure where the kernel does not tell whose a connection is.
    """

    def __init__(self) -> None:
        self._store = KeyValueStore()
        self._listener = socket.create_server((LOOPBACK, 0), backlog=1024)
        if listener_owner((LOOPBACK, self.port)) is None:
            self._listener.close()
            message = "the kernel does not tell who connects to Horovod's rendezvous"
            raise EnvironmentFailure(message, hint="modprobe tcp_diag")
        self._listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._wake, self._waker = socket.socketpair()
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="rendezvous", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port on 127.0.0.1."""
        return self._listener.getsockname()[1]

    def close(self) -> None:
        """Stop serving; open connections are cut."""
        self._waker.send(b".")
        self._thread.join()

    def _serve(self) -> None:
        while True:
            for key, mask in self._selector.select():
                if key.fileobj is self._wake:
                    self._close_all()
                    return
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._serve_client(key.data, mask)

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:
            return
        if len(self._selector.get_map()) > MAX_CONNECTIONS or not is_own_peer(client):
            client.close()
            return
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(client, selectors.EVENT_READ, _Connection(client))

    def _serve_client(self, connection: _Connection, mask: int) -> None:
        try:
            if mask & selectors.EVENT_READ:
                data = connection.client.recv(1 << 16)
                if not data:
                    self._drop(connection)
                    return
                connection.received += data
                self._answer_whole_requests(connection)
            self._send(connection)
        except BlockingIOError:
            return
        except OSError:
            self._drop(connection)

    def _answer_whole_requests(self, connection: _Connection) -> None:
        while not connection.is_closing:
            request = parse_request(connection.received)
            if request is None:
                return
            if isinstance(request, int):
                connection.to_send += _response(request, b"", keep=False)
                connection.is_closing = True
                return
            status, body = self._store.answer(request.method, request.path, request.body)
            connection.to_send += _response(status, body, keep=request.keep)
            connection.is_closing = not request.keep
            del connection.received[: request.size]

    def _send(self, connection: _Connection) -> None:
        if connection.to_send:
            sent = connection.client.send(connection.to_send)
            connection.to_send = connection.to_send[sent:]
        if not connection.to_send and connection.is_closing:
            self._drop(connection)
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.to_send else 0)
        self._selector.modify(connection.client, wanted, connection)

    def _drop(self, connection: _Connection) -> None:
        self._selector.unregister(connection.client)
        connection.client.close()

    def _close_all(self) -> None:
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()
        self._waker.close()


class Request:
    """One whole request, and how many bytes of the stream it took."""

    def __init__(self, method: str, path: str, body: bytes, *, keep: bool, size: int) -> None:
        self.method = method
        self.path = path
        self.body = body
        self.keep = keep
        self.size = size


def parse_request(received: bytes | bytearray) -> Request | int | None:
    """The first request of a stream: whole, or None while it is not, or the status of a refusal."""
    end = received.find(b"\r\n\r\n")
    if end < 0 or end > MAX_HEAD_BYTES:
        return 431 if len(received) > MAX_HEAD_BYTES else None
    head = received[:end].decode("latin-1").split("\r\n")
    words = head[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return 400
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (h.partition(":") for h in head[1:])
    }
    if "transfer-encoding" in headers:
        return 411
    length = headers.get("content-length", "0")
    if not length.isascii() or not length.isdigit():
        return 400
    if int(length) > MAX_VALUE_BYTES:
        return 413
    size = end + 4 + int(length)
    if len(received) < size:
        return None
    default = "keep-alive" if words[2] == "HTTP/1.1" else "close"
    keep = headers.get("connection", default).lower() != "close"
    return Request(words[0], words[1], bytes(received[end + 4 : size]), keep=keep, size=size)


def _response(status: int, body: bytes, *, keep: bool) -> bytes:
    connection = "keep-alive" if keep else "close"
    head = f"HTTP/1.1 {status} -\r\nContent-Length: {len(body)}\r\nConnection: {connection}\r\n\r\n"
    return head.encode() + body
