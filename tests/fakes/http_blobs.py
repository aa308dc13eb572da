"""A container of blobs behind real HTTP, in memory: what a transfer's requests are answered by.

Says what Azure's blob service says (block lists, MD5s, ranges); `hook` may answer in its stead.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from urllib.error import HTTPError
from urllib.parse import parse_qs, unquote, urlsplit
from urllib.request import urlopen
from xml.sax.saxutils import escape

from tests.busy import HANG_S
from tests.fakes.scripted_server import Asked, ScriptedServer, answer, scripted_server

# Gives a whole answer instead of the store's; None leaves it to the store.
Hook = Callable[[str, Asked], bytes | None]


@dataclass
class HttpBlobs:
    """The container; `asked` counts requests by kind."""

    url: str = ""
    server: ScriptedServer = field(init=False)
    blobs: dict[str, bytes] = field(default_factory=dict)
    md5s: dict[str, str] = field(default_factory=dict)
    versions: Counter[str] = field(default_factory=Counter)
    num_writes: int = 0
    blocks: dict[str, dict[str, bytes]] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    hook: Hook = lambda _kind, _asked: None
    _lock: Lock = field(default_factory=Lock)

    def answer(self, asked: Asked) -> bytes:
        parts = urlsplit(asked.target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        name = unquote(parts.path).removeprefix("/account/data").removeprefix("/")
        kind = f"{asked.line.split()[0]} {query.get('comp', 'blob')}"
        with self._lock:
            self.asked[kind] += 1
        said = self.hook(kind, asked)
        if said is not None:
            return said
        with self._lock:
            return _ANSWERS[kind](self, name, query, asked)

    def _put(self, name: str, _query: dict[str, str], asked: Asked) -> bytes:
        if "x-ms-copy-source" in asked.headers:
            return self._copy(name, asked)
        if _is_other(asked):
            return answer(400, x_ms_error_code="Md5Mismatch")
        if asked.headers.get("if-none-match") == "*" and name in self.blobs:
            return answer(409, x_ms_error_code="BlobAlreadyExists")
        return self._keep(name, asked.body, md5_of(asked.body))

    def _keep(self, name: str, content: bytes, md5: str | None) -> bytes:
        """Write a blob; it forgets what was staged for it, and an MD5 that nobody tells now."""
        self.blobs[name] = content
        self.md5s.pop(name, None)
        if md5 is not None:
            self.md5s[name] = md5
        self.num_writes += 1
        self.versions[name] = self.num_writes
        self.blocks.pop(name, None)
        return answer(201, ETag=self._etag(name))

    def _etag(self, name: str) -> str:
        return f'"{etag_of(self.blobs[name], self.versions[name])}"'

    def _list(self, _name: str, query: dict[str, str], _asked: Asked) -> bytes:
        after, most = query.get("marker", ""), int(query["maxresults"])
        names = sorted(name for name in self.blobs if name.startswith(query.get("prefix", "")))
        rest = [name for name in names if name >= after]
        page, more = rest[:most], rest[most : most + 1]
        blobs = "".join(
            f"<Blob><Name>{escape(name)}</Name><Properties><Etag>{self._etag(name)}</Etag>"
            f"<Content-Length>{len(self.blobs[name])}</Content-Length>"
            f"<Content-MD5>{self.md5s.get(name, '')}</Content-MD5>"
            "<BlobType>BlockBlob</BlobType></Properties></Blob>"
            for name in page
        )
        marker = f"<NextMarker>{escape(''.join(more))}</NextMarker>"
        body = f"<EnumerationResults><Blobs>{blobs}</Blobs>{marker}</EnumerationResults>"
        return answer(200, body.encode(), Content_Type="application/xml")

    def _copy(self, name: str, asked: Asked) -> bytes:
        where = asked.headers["x-ms-copy-source"]
        source = unquote(urlsplit(where).path).removeprefix("/account/data/")
        if not where.startswith(f"{self.url}/"):
            return self._fetch(name, where)
        if source not in self.blobs:
            return answer(404, x_ms_error_code="CannotVerifyCopySource")
        self._keep(name, self.blobs[source], self.md5s.get(source))
        return answer(202, x_ms_copy_status="success", ETag=self._etag(name))

    def _fetch(self, name: str, where: str) -> bytes:
        """Copy from another store, which is asked like by anybody."""
        try:
            with urlopen(where, timeout=HANG_S) as source:
                self._keep(name, source.read(), source.headers["Content-MD5"])
        except HTTPError as error:
            return answer(error.status, x_ms_error_code="CannotVerifyCopySource")
        return answer(202, x_ms_copy_status="success", ETag=self._etag(name))

    def _put_block(self, name: str, query: dict[str, str], asked: Asked) -> bytes:
        if _is_other(asked):
            return answer(400, x_ms_error_code="Md5Mismatch")
        self.blocks.setdefault(name, {})[query["blockid"]] = asked.body
        return answer(201)

    def _put_list(self, name: str, _query: dict[str, str], asked: Asked) -> bytes:
        if _is_other(asked):
            return answer(400, x_ms_error_code="Md5Mismatch")
        ids = re.findall(r"<Latest>([^<]+)</Latest>", asked.body.decode())
        staged = self.blocks.get(name, {})
        if not all(each in staged for each in ids):
            return answer(400, x_ms_error_code="InvalidBlockList")
        content = b"".join(staged[each] for each in ids)
        return self._keep(name, content, asked.headers.get("x-ms-blob-content-md5"))

    def _get_list(self, name: str, _query: dict[str, str], _asked: Asked) -> bytes:
        if name not in self.blobs and name not in self.blocks:
            return answer(404, x_ms_error_code="BlobNotFound")
        names = "".join(
            f"<Block><Name>{each}</Name><Size>1</Size></Block>"
            for each in self.blocks.get(name, {})
        )
        body = f"<BlockList><UncommittedBlocks>{names}</UncommittedBlocks></BlockList>"
        return answer(200, body.encode(), Content_Type="application/xml")

    def _get(self, name: str, _query: dict[str, str], asked: Asked) -> bytes:
        if name not in self.blobs:
            return answer(404, x_ms_error_code="BlobNotFound")
        content = self.blobs[name]
        version = self._etag(name)
        if asked.headers.get("if-match", version) != version:
            return answer(412, x_ms_error_code="ConditionNotMet")
        if "x-ms-range" not in asked.headers:
            md5 = {"Content_MD5": self.md5s[name]} if name in self.md5s else {}
            return answer(200, content, ETag=version, **md5)
        first, last = map(int, asked.headers["x-ms-range"].removeprefix("bytes=").split("-"))
        if first >= len(content):
            return answer(416, x_ms_error_code="InvalidRange")
        piece = content[first : last + 1]
        last = first + len(piece) - 1
        headers = {"Content_Range": f"bytes {first}-{last}/{len(content)}", "ETag": version}
        if name in self.md5s:
            headers["x_ms_blob_content_md5"] = self.md5s[name]
        if "x-ms-range-get-content-md5" in asked.headers:
            headers["Content_MD5"] = md5_of(piece)
        return answer(206, piece, **headers)

    def _delete(self, name: str, _query: dict[str, str], _asked: Asked) -> bytes:
        if self.blobs.pop(name, None) is None:
            return answer(404, x_ms_error_code="BlobNotFound")
        return answer(202)


_ANSWERS = {
    "PUT blob": HttpBlobs._put,
    "PUT block": HttpBlobs._put_block,
    "PUT blocklist": HttpBlobs._put_list,
    "GET blocklist": HttpBlobs._get_list,
    "GET list": HttpBlobs._list,
    "GET blob": HttpBlobs._get,
    "DELETE blob": HttpBlobs._delete,
}


def _is_other(asked: Asked) -> bool:
    """Whether a body is not the one whose MD5 was told with it."""
    return asked.headers.get("content-md5", md5_of(asked.body)) != md5_of(asked.body)


def etag_of(content: bytes, num_writes: int = 0) -> str:
    """Of the store's write of that number; of none that a test has put there itself."""
    return hashlib.md5(b"%d %b" % (num_writes, content), usedforsecurity=False).hexdigest()


def md5_of(content: bytes) -> str:
    """In base64, as headers have it."""
    return b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()


@contextmanager
def http_blobs() -> Iterator[HttpBlobs]:
    """Serve an empty container until the end of the test."""
    made = HttpBlobs()
    with scripted_server(made.answer) as server:
        made.url, made.server = server.url, server
        yield made
