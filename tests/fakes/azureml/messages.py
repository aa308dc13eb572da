"""A request, what is answered, and how a service finds who answers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request as it came; `when_s` is the time of day."""

    method: str
    host: str
    target: str  # path and query as sent
    headers: Mapping[str, str]
    body: bytes
    when_s: float

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))

    @property
    def json(self) -> Any:
        """The body, which must be JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            raise Refusal(400, "InvalidRequestContent", "The request content is no JSON.") from None


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What goes back; `drop` closes the connection instead of answering."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    drop: bool = False


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    """JSON."""
    kind = {"Content-Type": "application/json; charset=utf-8"}
    return Reply(
        status=status, body=json.dumps(value).encode(), headers={**kind, **(headers or {})}
    )


class Refusal(Exception):
    """An error that the service answers with, in ARM's form."""

    def __init__(
        self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.headers = headers or {}

    def reply(self) -> Reply:
        return answer(
            {"error": {"code": self.code, "message": self.message}}, self.status, self.headers
        )


Handler = Callable[..., Reply]


def on(method: str, path: str) -> Callable[[Handler], Handler]:
    """Have a service's method answer: `{name}` is one segment of the path, `{name*}` the rest."""

    def mark(handler: Handler) -> Handler:
        handler.__dict__.setdefault("routes", []).append((method, path))
        return handler

    return mark


class Service:
    """What answers for some hosts; paths are compared without case, as ARM does."""

    def __init__(self) -> None:
        self._routes: list[tuple[str, re.Pattern[str], Handler]] = []
        # In the order of the class: a fixed name stands before the pattern that would take it.
        for name, each in vars(type(self)).items():
            for method, path in getattr(each, "routes", ()):
                pattern = re.sub(r"{(\w+)\*}", r"(?P<\1>.*)", path)
                pattern = re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", pattern)
                compiled = re.compile(pattern, re.IGNORECASE)
                self._routes.append((method, compiled, getattr(self, name)))

    def handle(self, request: Request) -> Reply | None:
        """The answer, or None where no route fits."""
        for method, pattern, handler in self._routes:
            found = pattern.fullmatch(request.path) if method == request.method else None
            if found:
                return handler(request, **found.groupdict())
        return None
