"""A blob store for one folder, on loopback: ranges by GET, and what a test wants to go wrong."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.ports import free_port


@dataclass
class Trouble:
    """One odd answer: a status, an answer that is cut short, or one whose bytes are changed."""

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    flip: bool = False


class RangeServer:
    """Serves `folder`; `trouble(number)` says what goes wrong with request `number`, from 0.

    Answers as Azure's blobs do: MD5 of the range where it is asked for, that of the blob, ETag,
    If-Match, 403 where the query is not the valid signature, or 401 where `token` is what opens it.
    """

    def __init__(self, folder: Path, *, delay_s: float = 0.0, port: int = 0) -> None:
        self.folder = folder
        self.delay_s = delay_s
        self.sas = "sig=first"
        self.token: str | None = None
        self.trouble: Callable[[int], Trouble | None] = lambda _: None
        self.ranges: Counter[tuple[str, str]] = Counter()
        self.sent_bytes = 0
        self.num_requests = 0
        self.num_connections = 0
        self.has_md5 = True
        self._md5s: dict[tuple[str, int, int], str] = {}
        self.open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", port or free_port()), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.005,), daemon=True).start()

    @property
    def endpoint(self) -> str:
        """Below this the folder's files are."""
        return f"http://127.0.0.1:{self._server.server_port}/account/data"

    @property
    def port(self) -> int:
        """To start another one in its place."""
        return self._server.server_port

    def stop(self) -> None:
        """Answer no more, nor those that are connected."""
        self._server.shutdown()
        self._server.server_close()
        for connection in list(self.open):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                connection.shutdown(socket.SHUT_RDWR)

    def count(self) -> int:
        """Give the number of the request that came now."""
        with self._lock:
            self.num_requests += 1
            return self.num_requests - 1

    def note(self, path: str, asked: str, sent: int) -> None:
        """Count what was sent."""
        with self._lock:
            self.ranges[path, asked] += 1
            self.sent_bytes += sent

    def describe(self, file: Path) -> tuple[int, str]:
        """Give a file's size and MD5, which is worked out once."""
        status = file.stat()
        key = (str(file), status.st_mtime_ns, status.st_size)
        if key not in self._md5s:
            self._md5s[key] = md5_text(file.read_bytes())
        return status.st_size, self._md5s[key]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(_Handler):
            store = server

        return Handler


class _Handler(BaseHTTPRequestHandler):
    store: RangeServer
    protocol_version = "HTTP/1.1"
    # Head and body in one packet: else each answer waits 40 ms for an acknowledgement.
    wbufsize = 1 << 16

    def setup(self) -> None:
        super().setup()
        self.store.num_connections += 1
        self.store.open.add(self.connection)

    def do_GET(self) -> None:
        store = self.store
        if store.delay_s:
            time.sleep(store.delay_s)
        trouble = store.trouble(store.count()) or Trouble()
        parts = urlsplit(self.path)
        if trouble.status:
            self._answer(trouble.status, b"", trouble.headers)
            return
        if store.token is not None:
            if self.headers.get("Authorization") != f"Bearer {store.token}":
                self._answer(401, b"", {"x-ms-error-code": "InvalidAuthenticationInfo"})
                return
        elif parts.query != store.sas:
            self._answer(403, b"", {"x-ms-error-code": "AuthenticationFailed"})
            return
        path = unquote(parts.path).removeprefix("/account/data/")
        self._answer_range(path, trouble)

    def _answer_range(self, path: str, trouble: Trouble) -> None:
        store = self.store
        file = store.folder / path
        if not file.is_file():
            self._answer(404, b"", {"x-ms-error-code": "BlobNotFound"})
            return
        size, md5 = store.describe(file)
        etag = f'"{md5[:16]}"'
        if self.headers.get("If-Match", etag) != etag:
            self._answer(412, b"", {"x-ms-error-code": "ConditionNotMet"})
            return
        asked = self.headers["Range"].removeprefix("bytes=")
        first, last = map(int, asked.split("-"))
        if first >= size:
            self._answer(416, b"", {"x-ms-error-code": "InvalidRange"})
            return
        with file.open("rb") as reading:
            reading.seek(first)
            body = reading.read(last + 1 - first)
        headers = {
            "ETag": etag,
            "Content-Range": f"bytes {first}-{first + len(body) - 1}/{size}",
        }
        if store.has_md5:
            headers["x-ms-blob-content-md5"] = md5
            if "x-ms-range-get-content-md5" in self.headers:
                headers["Content-MD5"] = md5_text(body)
        store.note(path, asked, len(body))
        if trouble.flip:
            body = bytes([body[0] ^ 1]) + body[1:]
        self._answer(206, body, headers, cut=trouble.cut)

    def _answer(
        self, status: int, body: bytes, headers: dict[str, str], *, cut: bool = False
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if cut else body)
        self.wfile.flush()
        if cut:
            self.close_connection = True
            self.connection.close()

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # who asked is gone
            super().handle()

    def finish(self) -> None:
        self.store.open.discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def log_message(self, *_: Any) -> None:
        """Keep quiet."""


def md5_text(content: bytes) -> str:
    return base64.b64encode(hashlib.md5(content).digest()).decode()
