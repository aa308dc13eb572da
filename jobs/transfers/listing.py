"""Lists a container's blobs page by page."""

from __future__ import annotations

import html
import re
from base64 import b64decode
from typing import NamedTuple
from urllib.parse import unquote

from msgspec import Struct

from jobs.transfers.connection import Connection, Steps
from jobs.transfers.container import Container

PAGE_BLOBS = 5_000
_BLOB = re.compile(rb"<Blob>\s*<Name([^>]*)>(.*?)</Name>(.*?)</Blob>", re.DOTALL)
_BYTES = re.compile(rb"<Content-Length>(\d+)</Content-Length>")
_MD5 = re.compile(rb"<Content-MD5>([^<]+)</Content-MD5>")
_ETAG = re.compile(rb"<Etag>([^<]*)</Etag>", re.IGNORECASE)
_MARKER = re.compile(rb"<NextMarker>([^<]+)</NextMarker>")


class Blob(Struct, frozen=True, kw_only=True):
    """What a listing says of one blob; `md5` is None where it was written without one."""

    name: str
    bytes: int
    md5: bytes | None
    etag: str


class Page(NamedTuple):
    """Some blobs, and where the next ones begin; None at the end."""

    blobs: list[Blob]
    marker: str | None


def list_page(
    container: Container, connection: Connection, *, prefix: str, marker: str | None
) -> Steps[Page]:
    """Ask for one page, in the order of names."""
    query = {"comp": "list", "maxresults": str(PAGE_BLOBS), "restype": "container"}
    if prefix:
        query["prefix"] = prefix
    if marker:
        query["marker"] = marker
    answer = yield from container.request(connection, "GET", query=query)
    return parse_page(answer.body)


def parse_page(body: bytes) -> Page:
    """Read a page by patterns: a tree of its 75,000 elements costs several times as much."""
    blobs = [
        Blob(
            name=_text(name, is_encoded=b"true" in attributes),
            bytes=int(found[1]) if (found := _BYTES.search(rest)) else 0,
            md5=b64decode(found[1]) if (found := _MD5.search(rest)) else None,
            etag=found[1].decode().strip('"') if (found := _ETAG.search(rest)) else "",
        )
        for attributes, name, rest in _BLOB.findall(body)
    ]
    found = _MARKER.search(body)
    return Page(blobs, _text(found[1]) if found else None)


def _text(raw: bytes, *, is_encoded: bool = False) -> str:
    text = raw.decode()
    if "&" in text:
        text = html.unescape(text)
    return unquote(text) if is_encoded else text
