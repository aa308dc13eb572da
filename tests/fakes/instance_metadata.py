"""Azure's instance metadata service on loopback: a machine's name, its events, its identities."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

EVENTS_PATH = "/metadata/scheduledevents?api-version=2020-07-01"
TOKEN_PATH = "/metadata/identity/oauth2/token"
NAME_PATH = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"


class InstanceMetadata:
    """Answers as documented; `answer` replaces what is asked for by other bytes, or by a status.

    `identities` are by client id ("" for the only one) what their tokens begin with.
    """

    def __init__(self) -> None:
        self.name = "trainers_3"
        self.events: list[dict[str, Any]] = []
        self.answer: bytes | int | None = None
        self.identities: dict[str, str] = {}
        self.lifetime_s = 86_400
        self.expires_on = ""
        self.num_polls = self.num_tokens = 0
        self.url = ""

    def schedule(self, kind: str, *, resources: tuple[str, ...] = ("trainers_3",)) -> None:
        """Announce an event, as the documents show one."""
        not_before = datetime.now(UTC) + timedelta(seconds=30)
        self.events.append(
            {
                "EventId": "f020ba2e-3bc0-4c40-a10b-86575a9eabd5",
                "EventType": kind,
                "ResourceType": "VirtualMachine",
                "Resources": list(resources),
                "EventStatus": "Scheduled",
                "NotBefore": format_datetime(not_before, usegmt=True),
                "Description": "Host server is undergoing maintenance.",
                "EventSource": "Platform",
                "DurationInSeconds": -1,
            }
        )

    def reply(self, path: str, headers: Any) -> tuple[int, bytes]:
        """Give status and body."""
        if headers.get("Metadata") != "true" or headers.get("X-Forwarded-For"):
            return 400, b"Bad request. Required metadata header not specified"
        if path == NAME_PATH:
            return 200, self.name.encode()
        if path.startswith(f"{TOKEN_PATH}?"):
            return self._token(parse_qs(path.partition("?")[2]))
        if path != EVENTS_PATH:
            return 404, b""
        self.num_polls += 1
        if isinstance(self.answer, int):
            return self.answer, b""
        if self.answer is not None:
            return 200, self.answer
        return 200, json.dumps({"DocumentIncarnation": 1, "Events": self.events}).encode()

    def _token(self, query: dict[str, list[str]]) -> tuple[int, bytes]:
        if isinstance(self.answer, int):
            return self.answer, b""
        (client_id,) = query.get("client_id", [""])
        if client_id not in self.identities or query["api-version"] != ["2018-02-01"]:
            return 400, b'{"error": "invalid_request", "error_description": "Identity not found"}'
        self.num_tokens += 1
        body = {
            "access_token": f"{self.identities[client_id]}-{self.num_tokens}",
            "expires_on": self.expires_on or str(int(time.time()) + self.lifetime_s),
            "resource": query["resource"][0],
            "token_type": "Bearer",
        }
        return 200, json.dumps(body).encode()


@contextmanager
def instance_metadata() -> Iterator[InstanceMetadata]:
    """Serve on a free port of 127.0.0.1."""
    service = InstanceMetadata()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = service.reply(self.path, self.headers)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service.url = f"http://127.0.0.1:{server.server_port}{EVENTS_PATH}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
