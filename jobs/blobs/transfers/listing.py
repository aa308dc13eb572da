"""Lists a container's blobs page by page."""

from __future__ import annotations

import re
from base64 import b64decode
from typing import NamedTuple
from urllib.parse import unquote

from msgspec import Struct

from jobs.blobs.transfers.connection import Connection, Sink, Steps
from jobs.blobs.transfers.container import Container

# The store gives up to 5,000; with fewer the memory for a million stays that for a few.
PAGE_BLOBS = 2_000
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
    reader = _PageReader()
    yield from container.request(connection, "GET", query=query, sink=reader.begin)
    return Page(reader.blobs, reader.marker())


class _PageReader:
    """Takes a page's XML as it comes, and keeps of it what is wanted: a tenth of its megabytes.

    By patterns: a tree of all its elements costs several times the time.
    """

    def __init__(self) -> None:
        self.blobs: list[Blob] = []
        self._rest = b""

    def begin(self) -> Sink:
        self.blobs.clear()
        self._rest = b""
        return self._take

    def _take(self, chunk: memoryview) -> None:
        self._rest += chunk
        end = 0
        for found in _BLOB.finditer(self._rest):
            self.blobs.append(_blob(*found.groups()))
            end = found.end()
        self._rest = self._rest[end:]

    def marker(self) -> str | None:
        found = _MARKER.search(self._rest)
        return _text(found[1]) if found else None


def _blob(attributes: bytes, name: bytes, rest: bytes) -> Blob:
    size, md5, etag = _BYTES.search(rest), _MD5.search(rest), _ETAG.search(rest)
    return Blob(
        name=_text(name, is_encoded=b"true" in attributes),
        bytes=int(size[1]) if size else 0,
        md5=b64decode(md5[1]) if md5 else None,
        etag=etag[1].decode().strip('"') if etag else "",
    )


def _text(raw: bytes, *, is_encoded: bool = False) -> str:
    text = raw.decode()
    if "&" in text:
        import html

        text = html.unescape(text)
    return unquote(text) if is_encoded else text
