"""Reads ranges of blobs over HTTP, checks each, and retries while the blob store fails."""

from __future__ import annotations

import base64
import hashlib
import http.client
import random
import re
import ssl
import threading
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

from trainer.common.errors import TrainingError
from trainer.common.messages import warn
from trainer.data.streaming.flow import Flow
from trainer.data.streaming.loopback_owner import check_own_server

VERSION = "2021-12-02"
# The longest range of which the store gives the MD5.
MAX_RANGE_BYTES = 4 << 20
# An error's text is read, lest its connection be closed; more than that may be a whole blob.
MAX_UNWANTED_BYTES = 64 << 10
TIMEOUT_S = 30
# As long as a store may be away, restarted or too busy, before the training ends.
PATIENCE_S = 120.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 5.0
# A pause after which somebody who looks on should know why nothing moves.
SILENT_S = 5.0
KeyKind = Literal["signature", "token"]
PASSING = frozenset({408, 429, 500, 502, 503, 504})
# Who is shown what opens the store: Azure's stores over TLS; a signature, the local store, too.
_AZURES = re.compile(r"https://[a-z0-9.-]+\.blob\.core\.windows\.net")
_LOCAL = re.compile(r"http://(127\.0\.0\.1|localhost|\[::1\])(:[0-9]+)?")


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """Describe a blob as it was pushed: path, size in bytes, `md5` in base64 (None if not recorded)."""

    path: str
    bytes: int
    md5: str | None = None


class _PassingError(Exception):
    """Report a failure that may be gone at the next try, so that the request is repeated."""

    def __init__(self, why: str, *, pause_s: float = 0.0) -> None:
        super().__init__(why)
        self.pause_s = pause_s


class RangeStore:
    """Blobs below one address, read by any number of threads over connections that stay open.

    `key_file` holds what lets us in, a signature or an identity's token; it is read again when the
    store refuses it, so that it can be renewed while training goes on. Raises TrainingError for an
    address that must not see it. `flow` measures what arrives.
    """

    def __init__(
        self,
        endpoint: str,
        key_file: Path,
        *,
        kind: KeyKind = "signature",
        patience_s: float = PATIENCE_S,
        flow: Flow | None = None,
    ) -> None:
        self._flow = flow
        self._idle: list[http.client.HTTPConnection] = []
        _require_store(endpoint, kind)
        parts = urlsplit(endpoint)
        self._endpoint = endpoint
        self._host, self._port, self._path = parts.hostname or "", parts.port, parts.path
        # One for all connections: to load the system's certificates takes 20 ms.
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._key_file = key_file
        self._kind: KeyKind = kind
        self._key = _read_key(key_file, kind)
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._etags: dict[str, str] = {}
        self._told_s = 0.0

    def read(self, file: RemoteFile, start: int, length: int) -> bytes:
        """Give `length` bytes of a blob, at most MAX_RANGE_BYTES.

        Waits while the store is away. Raises TrainingError where it stays away, refuses us, or
        has another blob than was pushed, or than at the first read.
        """
        give_up_s = time.monotonic() + self._patience_s
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                with self._flow.request(length) if self._flow else nullcontext():
                    return self._ask(file, start, length)
            except (_PassingError, OSError, http.client.HTTPException) as error:
                asked_s = getattr(error, "pause_s", 0.0)
                wait_s = max(asked_s, pause_s * random.uniform(0.5, 1.0))
                if time.monotonic() + wait_s > give_up_s:
                    message = (
                        f"the store {self._endpoint} does not give `{file.path}`: {_why(error)}"
                    )
                    hint = "look at the store, then start the run again from its checkpoint"
                    raise TrainingError(message, hint=hint) from None
                self._tell(error, since_s=give_up_s - self._patience_s)
                time.sleep(wait_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _tell(self, error: Exception, *, since_s: float) -> None:
        now_s = time.monotonic()
        if now_s - since_s > SILENT_S and now_s - self._told_s > self._patience_s:
            self._told_s = now_s
            warn(f"waiting for the store {self._endpoint}: {_why(error)}")

    def _ask(self, file: RemoteFile, start: int, length: int) -> bytes:
        key = self._key
        answer, body = self._get(file.path, key, start, length)
        if answer.status in (401, 403):
            self._renew(key, answer)
            message = f"the {self._kind} was renewed"
            raise _PassingError(message)
        if answer.status in PASSING:
            waited = answer.headers.get("Retry-After", "")
            pause_s = min(float(waited), 30.0) if waited.isdecimal() else 0.0
            raise _PassingError(_status(answer), pause_s=pause_s)
        if answer.status != 206:
            raise self._refusal(file.path, answer)
        given = answer.headers.get("Content-Range")
        if given != f"bytes {start}-{start + length - 1}/{file.bytes}":
            raise self._changed(file.path)
        self._require_same(file, answer)
        _require_whole(answer, body, length)
        return body

    def _get(
        self, path: str, key: str, start: int, length: int
    ) -> tuple[http.client.HTTPResponse, bytes]:
        headers = {
            "Range": f"bytes={start}-{start + length - 1}",
            "x-ms-range-get-content-md5": "true",
            "x-ms-version": VERSION,
        }
        if etag := self._etags.get(path):
            headers["If-Match"] = etag
        target = f"{self._path}/{quote(path)}"
        if self._kind == "token":
            headers["Authorization"] = f"Bearer {key}"
        else:
            target += f"?{key}"
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is not None:
            # One that the store has closed meanwhile says nothing about the store.
            try:
                return self._exchange(connection, target, headers, length)
            except (OSError, http.client.HTTPException):
                pass
        return self._exchange(self._connect(), target, headers, length)

    def _connect(self) -> http.client.HTTPConnection:
        if self._tls is None:
            plain = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
            try:
                plain.connect()
                check_own_server(plain.sock)
            except BaseException:
                plain.close()
                raise
            return plain
        proxy = None if proxy_bypass(self._host) else getproxies().get("https")
        host, port = _address(proxy) if proxy else (self._host, self._port)
        connection = http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=self._tls)
        if proxy:
            connection.set_tunnel(self._host, self._port)
        return connection

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        target: str,
        headers: dict[str, str],
        length: int,
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """Send one request; gives the answer, and of a range its bytes."""
        try:
            connection.request("GET", target, headers=headers)
            answer = connection.getresponse()
            body = _read_body(answer, length)
        except BaseException:
            connection.close()
            raise
        if answer.will_close or not answer.isclosed():
            connection.close()
        else:
            with self._lock:
                self._idle.append(connection)
        return answer, body

    def _renew(self, refused: str, answer: http.client.HTTPResponse) -> None:
        """Read the key again; raises TrainingError where it is the one that was refused."""
        with self._lock:
            if self._key == refused:
                self._key = _read_key(self._key_file, self._kind)
            if self._key != refused:
                return
        if self._kind == "token" and answer.status == 401:
            # The node renews it by itself; a signature is renewed by nobody, and a 403 stays.
            message = f"{_status(answer)}: the token is not renewed"
            raise _PassingError(message)
        message = f"the store {self._endpoint} lets us in no more: {_status(answer)}"
        if self._kind == "token":
            hint = (
                "the cluster's identity may not read the container, or a firewall is in between: "
            )
            hint += "launch doctor"
        else:
            hint = "the signature of this run has expired: start it again from its checkpoint"
        raise TrainingError(message, hint=hint)

    def _refusal(self, path: str, answer: http.client.HTTPResponse) -> TrainingError:
        if answer.status in (412, 416):
            return self._changed(path)
        message = f"the store {self._endpoint} does not give `{path}`: {_status(answer)}"
        return TrainingError(message, hint="launch data show NAME says whether it is whole")

    def _require_same(self, file: RemoteFile, answer: http.client.HTTPResponse) -> None:
        md5, etag = answer.headers.get("x-ms-blob-content-md5"), answer.headers.get("ETag")
        if file.md5 and md5:
            is_same = md5 == file.md5
        else:
            # All ranges are of one blob, whichever it is.
            is_same = etag is None or self._etags.setdefault(file.path, etag) == etag
        if not is_same:
            raise self._changed(file.path)

    def _changed(self, path: str) -> TrainingError:
        message = f"`{path}` in the store {self._endpoint} differs from the pushed file"
        return TrainingError(message, hint="push the dataset again, and name the new version")

    def __del__(self) -> None:
        for connection in self._idle:
            connection.close()


def _require_store(endpoint: str, kind: KeyKind) -> None:
    address = "/".join(endpoint.split("/")[:3])
    if _AZURES.fullmatch(address) or (kind == "signature" and _LOCAL.fullmatch(address)):
        return
    message = f"the {kind} of this run is not sent to `{address}`, which is not an Azure store"
    raise TrainingError(message, hint="see who wrote the environment's file")


def _address(proxy: str) -> tuple[str, int | None]:
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    return parts.hostname or "", parts.port


def _read_body(answer: http.client.HTTPResponse, length: int) -> bytes:
    """Read a range to its end; of other answers what is little, so that the connection can stay."""
    if answer.status == 206:
        return answer.read(length)
    if answer.length is not None and answer.length <= MAX_UNWANTED_BYTES:
        answer.read()
    return b""


def _require_whole(answer: http.client.HTTPResponse, body: bytes, length: int) -> None:
    if len(body) != length:
        message = f"the answer ended after {len(body)} of {length} bytes"
        raise _PassingError(message)
    told = answer.headers.get("Content-MD5")
    if told is None:
        return
    # Against errors on the way, not against people.
    digest = hashlib.md5(body, usedforsecurity=False).digest()
    if base64.b64encode(digest).decode() != told:
        message = "an answer arrived with other content than was sent"
        raise _PassingError(message)


def _read_key(path: Path, kind: KeyKind) -> str:
    try:
        key = path.read_text(encoding="ascii").strip().removeprefix("?")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        message = f"the store's {kind} in `{path}` cannot be read: {why}"
        raise TrainingError(message, hint="start the run again from its checkpoint") from None
    # http.client would show the whole address, signature and all, in its error.
    if not key or any(not 32 < ord(character) < 127 for character in key):
        message = f"`{path}` holds no {kind} of a store"
        raise TrainingError(message, hint="start the run again from its checkpoint")
    return key


def _status(answer: http.client.HTTPResponse) -> str:
    code = answer.headers.get("x-ms-error-code", answer.reason)
    return f"{answer.status} {code}"


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
