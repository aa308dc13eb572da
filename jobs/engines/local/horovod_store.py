"""Serves Horovod's rendezvous: bytes by path over HTTP, on loopback, for one gang of our user.

Horovod's own launcher listens on every interface and unpickles whatever anybody PUTs there
(CVE-2024-10190, CVE-2026-31234). Here values are never decoded, their size and number are bounded, and
a connection is closed unless the kernel says that a process of our user made it: whoever rewrites
addresses sits between the ranks.
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from jobs.contracts.errors import EnvironmentFailure
from jobs.engines.local.launchers import LOOPBACK
from jobs.host.socket_owner import is_own_peer, listener_owner

MAX_VALUE_BYTES = 1 << 20
MAX_KEYS = 1 << 16
_DIGITS = len(str(MAX_VALUE_BYTES))
_LONGEST_WAIT_S = 86400.0


class RendezvousServer(ThreadingHTTPServer):
    """Serves one store from threads of its own until `close`.

    Raises EnvironmentFailure if the kernel does not tell whose a connection is.
    """

    daemon_threads = True
    block_on_close = False  # a connection that a rank leaves open ends with the rank
    request_queue_size = 1024

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        super().__init__((LOOPBACK, 0), _Request)
        if listener_owner((LOOPBACK, self.port)) is None:
            self.server_close()
            message = "the kernel does not report who connects to Horovod's rendezvous"
            raise EnvironmentFailure(message, hint="modprobe tcp_diag")
        self._thread = threading.Thread(target=self.serve_forever, args=(_LONGEST_WAIT_S,))
        self._thread.daemon = True
        self._thread.start()

    @property
    def port(self) -> int:
        """The port on 127.0.0.1."""
        return self.server_address[1]

    def close(self) -> None:
        """Stop accepting connections, and give the port back."""
        self.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self.shutdown()
        self._thread.join()
        self.server_close()

    def server_bind(self) -> None:
        """Bind as TCPServer does: HTTPServer would ask a name server for this machine's name."""
        socketserver.TCPServer.server_bind(self)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Refuse a connection of another user before a byte of it is read."""
        del client_address
        return is_own_peer(request)


class _Request(BaseHTTPRequestHandler):
    """Answers one client: GET gives 404 until the key is there, PUT stores, DELETE removes."""

    server: RendezvousServer  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body in one packet

    def handle(self) -> None:
        """Answer until the client hangs up, or is killed."""
        with contextlib.suppress(ConnectionError):
            super().handle()

    def do_GET(self) -> None:
        """Give a value."""
        value = self.server.values.get(self.path)
        self._answer(404 if value is None else 200, value or b"")

    def do_PUT(self) -> None:
        """Store a value of bounded size under one of a bounded number of keys."""
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers:
            return self.send_error(411)
        if not (length.isascii() and length.isdigit()):
            return self.send_error(400)
        if len(length) > _DIGITS or int(length) > MAX_VALUE_BYTES:
            return self.send_error(413)
        body, values = self.rfile.read(int(length)), self.server.values
        if len(body) < int(length):  # the client was killed
            self.close_connection = True
            return None
        if self.path not in values and len(values) >= MAX_KEYS:
            return self._answer(507)
        values[self.path] = body
        return self._answer(200)

    def do_DELETE(self) -> None:
        """Remove a value; Horovod does so with a scope that is finished."""
        self.server.values.pop(self.path, None)
        self._answer(200)

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response_only(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Keep requests out of the run's log."""
