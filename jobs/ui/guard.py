"""Lets one browser in: a one-time token becomes a cookie; foreign hosts and origins get nothing."""

from __future__ import annotations

import secrets
from hmac import compare_digest

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Nothing but our own files; no script or style within a page, and no page of another's around it.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
# From a page of ours, so that the browser sends the cookie, which it keeps from pages of others.
_ENTERED = (
    '<!doctype html><html lang="en"><title>Trainyard</title><link rel="icon" href="data:,">'
    '<meta http-equiv="refresh" content="0; url=/runs">'
)
_HINT = "type `launch ui`, and open the address that it prints: it works once\n"


class Guard:
    """An ASGI application in front of the pages."""

    def __init__(self, pages: ASGIApp, *, port: int, token: str) -> None:
        self._pages = pages
        names = ("127.0.0.1", "localhost")
        self._hosts = {f"{name}:{port}" for name in names}
        if port == 80:  # which browsers leave out
            self._hosts |= {*names}
        self._cookie = f"trainyard-{port}"  # cookies are of a host, whatever the port
        self._token: str | None = token
        self._session = secrets.token_urlsafe(32)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or hand it on."""
        if scope["type"] != "http":
            await self._pages(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self._refusal(scope)
        await (answer or self._pages)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        """Give the answer to a request that does not get to the pages; None for one that does."""
        headers = Headers(scope=scope)
        if headers.get("host") not in self._hosts:
            return PlainTextResponse("this server is for 127.0.0.1 alone\n", 421)
        origin = headers.get("origin")
        is_read = scope["method"] in ("GET", "HEAD")
        is_ours = origin in {f"http://{host}" for host in self._hosts}
        if not is_ours and (origin is not None or not is_read):
            return PlainTextResponse("from another origin\n", 403)
        token = QueryParams(scope["query_string"]).get("token")
        is_in = compare_digest(self._given(headers), self._session)
        if token is not None and scope["path"] == "/" and not is_in and scope["method"] == "GET":
            return self._enter(token)
        return None if is_in else PlainTextResponse(_HINT, 403)

    def _enter(self, token: str) -> Response:
        if self._token is None or not compare_digest(token.encode(), self._token.encode()):
            return PlainTextResponse(f"this address was used already\n{_HINT}", 403)
        self._token = None
        answer = HTMLResponse(_ENTERED)
        answer.set_cookie(self._cookie, self._session, httponly=True, samesite="strict")
        return answer

    def _given(self, headers: Headers) -> str:
        # Other programs of this host send theirs, too; Python's own parser gives up at an odd one.
        given = cookie_parser(headers.get("cookie", "")).get(self._cookie, "")
        return given if given.isascii() else ""
