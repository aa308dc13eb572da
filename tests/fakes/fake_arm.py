"""Stands in for Azure Resource Manager on loopback: keeps what is PUT, answers as told."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class FakeArm:
    """What came in, and the answers that wait; without one it is 201, then 200 for the same."""

    def __init__(self) -> None:
        self.endpoint = ""
        self.resources: dict[str, Any] = {}
        self.requests: list[tuple[str, str]] = []
        self.answers: list[tuple[int, dict[str, str], Any]] = []

    def put(self, path: str, body: Any) -> tuple[int, dict[str, str], Any]:
        """Answer a PUT."""
        self.requests.append(("PUT", path))
        if self.answers:
            return self.answers.pop(0)
        status = 200 if path in self.resources else 201
        self.resources[path] = body
        return status, {}, body


@contextmanager
def fake_arm() -> Iterator[FakeArm]:
    """Serve one as long as the context."""
    arm = FakeArm()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            status, headers, answer = arm.put(self.path, json.loads(self.rfile.read(length)))
            content = json.dumps(answer).encode()
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    arm.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield arm
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
