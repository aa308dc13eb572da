"""An HTTP server on loopback whose every answer a test writes itself, byte by byte."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.busy import wait_until

CLOSE = b"close"


@dataclass(frozen=True)
class Asked:
    """One request that came."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def target(self) -> str:
        return self.line.split()[1]


# Gives the whole answer; CLOSE or an answer's part hangs up after it.
Answering = Callable[[Asked], bytes]


@dataclass
class ScriptedServer:
    """Where it listens, and what it was asked."""

    port: int
    asked: list[Asked] = field(default_factory=list)
    num_connections: int = 0
    ended: list[socket.socket] = field(default_factory=list)

    def wait_until_hung_up(self) -> None:
        """Wait until each connection so far has ended."""
        wait_until(lambda: len(self.ended) >= self.num_connections, 60)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/account/data"


def answer(status: int, body: bytes = b"", **headers: str) -> bytes:
    """A whole answer; `x_ms_error_code=...` is the header x-ms-error-code."""
    fields = {"Content-Length": str(len(body)), **headers}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status} Said\r\n{lines}\r\n".encode() + body


@contextmanager
def scripted_server(
    answering: Answering, *, tls: ssl.SSLContext | None = None
) -> Iterator[ScriptedServer]:
    """Serve until the end of the test; a thread a connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = ScriptedServer(listener.getsockname()[1])
        threading.Thread(target=_accept, args=(listener, server, answering, tls)).start()
        try:
            yield server
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def _accept(
    listener: socket.socket,
    server: ScriptedServer,
    answering: Answering,
    tls: ssl.SSLContext | None,
) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        server.num_connections += 1
        arguments = (connection, server, answering, tls)
        threading.Thread(target=_serve, args=arguments, daemon=True).start()


def _serve(
    connection: socket.socket,
    server: ScriptedServer,
    answering: Answering,
    tls: ssl.SSLContext | None,
) -> None:
    with connection:
        try:
            if tls is not None:
                connection = tls.wrap_socket(connection, server_side=True)
            while True:
                asked = read_request(connection)
                server.asked.append(asked)
                said = answering(asked)
                connection.sendall(said.removesuffix(CLOSE))
                if said.endswith(CLOSE):
                    return
        except OSError:
            return
        finally:
            connection.close()
            server.ended.append(connection)


def read_request(connection: socket.socket) -> Asked:
    """Read one request whole; raises ConnectionError where the client hung up."""
    got = b""
    while b"\r\n\r\n" not in got:
        some = connection.recv(65536)
        if not some:
            raise ConnectionResetError
        got += some
    head, _, body = got.partition(b"\r\n\r\n")
    line, *fields = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in fields)}
    pieces, left = [body], int(headers.get("content-length", "0")) - len(body)
    while left > 0:
        some = connection.recv(min(1 << 20, left))
        if not some:
            raise ConnectionResetError
        pieces.append(some)
        left -= len(some)
    return Asked(line, headers, b"".join(pieces))
