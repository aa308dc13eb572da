"""Azure's instance metadata service on loopback: a machine's name and its Scheduled Events."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

EVENTS_PATH = "/metadata/scheduledevents?api-version=2020-07-01"
NAME_PATH = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"


class InstanceMetadata:
    """Answers as documented; `answer` replaces the document by other bytes, or by a status."""

    def __init__(self) -> None:
        self.name = "trainers_3"
        self.events: list[dict[str, Any]] = []
        self.answer: bytes | int | None = None
        self.num_polls = 0
        self.url = ""

    def schedule(
        self, kind: str, *, resources: tuple[str, ...] = ("trainers_3",), in_s: float = 30
    ) -> None:
        """Announce an event, as the documents show one."""
        not_before = datetime.now(UTC) + timedelta(seconds=in_s)
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
        if path != EVENTS_PATH:
            return 404, b""
        self.num_polls += 1
        if isinstance(self.answer, int):
            return self.answer, b""
        if self.answer is not None:
            return 200, self.answer
        return 200, json.dumps({"DocumentIncarnation": 1, "Events": self.events}).encode()


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
