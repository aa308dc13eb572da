"""The proxy that programs reach Azure's real names through; it ends their TLS and asks a function.

Every name that it is not told of is refused: nothing leaves the machine.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.fakes.azureml.certificates import Authority
from tests.fakes.azureml.messages import Reply, Request

Dispatch = Callable[[Request], Reply]


class Proxy:
    """Serves on 127.0.0.1 from `start` to `stop`; `answers` says which hosts it knows."""

    def __init__(
        self, authority: Authority, dispatch: Dispatch, answers: Callable[[str], bool]
    ) -> None:
        self._server = _Server(authority, dispatch, answers)
        # A short poll: stopping waits for it.
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def port(self) -> int:
        return self._server.server_port

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # clients keep their connections open
    request_queue_size = 128

    def __init__(
        self, authority: Authority, dispatch: Dispatch, answers: Callable[[str], bool]
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.authority, self.dispatch, self.answers = authority, dispatch, answers

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away (killed in a test) is no error of the server's."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server
    host = ""  # of the tunnel; none without

    def do_CONNECT(self) -> None:
        host, _, _ = self.path.partition(":")
        if not self.server.answers(host):
            self.send_error(403, f"the stand-in does not know {host}")
            self.close_connection = True
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.flush()
        context = self.server.authority.context(host)
        self.connection = context.wrap_socket(self.connection, server_side=True)
        self.rfile = self.connection.makefile("rb", -1)
        self.wfile = self.connection.makefile("wb", 0)
        self.host, self.close_connection = host, False

    def finish(self) -> None:
        try:
            super().finish()
        finally:  # a client that is gone fails the last flush
            self.connection.close()

    def _serve(self) -> None:
        if not self.host:
            # Programs inside a job ask for their identity's token in the clear, on loopback.
            self.host, tunnel = "127.0.0.1", False
        else:
            tunnel = True
        request = Request(
            method=self.command,
            host=self.host,
            target=self.path,
            headers=self.headers,
            body=self._read_body(),
            when_s=time.time(),
        )
        reply = self.server.dispatch(request)
        if not tunnel:
            self.host = ""
        if reply.drop:
            self.close_connection = True
            return
        self._send(reply)

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _send(self, reply: Reply) -> None:
        self.send_response_only(reply.status)
        given = {name.lower() for name in reply.headers}
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if "content-length" not in given and reply.status not in {204, 304}:
            self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)

    do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = do_HEAD = _serve  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass
