"""Downloads published archives: resumable, from several mirrors, checked by their SHA-256.

DIR/.NAME.part         what is there so far; becomes DIR/NAME when its checksum is right
DIR/.NAME.part.json    which file of which server that is (its ETag)
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import shutil
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from trainer.common.errors import TrainingError
from trainer.common.json_text import parse_json
from trainer.common.whole_file import write_whole
from trainer.data.disk.events import Events
from trainer.data.disk.locks import locked
from trainer.data.prepare.published import Archive

# Waits before the next try; all of them in a row without a byte, and the next mirror is asked.
BACKOFF_S = (1.0, 2.0, 4.0, 8.0, 15.0)
TIMEOUT_S = 30.0
_BLOCK_BYTES = 1 << 20
_SPARE_BYTES = 256 << 20
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}
_AGAIN = {408, 425, 429, 500, 502, 503, 504}
_CONTENT_RANGE = re.compile(r"bytes (?:([0-9]+)-[0-9]+|\*)/([0-9]+)")


class _Unreachable(Exception):
    """A server does not give the file; another mirror may."""


class _CutOff(Exception):
    """A transfer ended early; the same server may give the rest."""


def fetch_archives(
    archives: Sequence[Archive],
    folder: Path,
    events: Events,
    *,
    backoff_s: Sequence[float] = BACKOFF_S,
) -> None:
    """Download the archives that `folder` lacks.

    Raises TrainingError where no mirror gives an archive, or where one in the folder has another
    size than the published one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    missing = [archive for archive in archives if not _is_there(archive, folder)]
    progress = _Progress(
        events=events,
        num_files=len(archives),
        num_bytes=sum(archive.num_bytes for archive in archives),
        files_done=len(archives) - len(missing),
        bytes_done=sum(each.num_bytes for each in archives if each not in missing),
    )
    _require_room(missing, folder)
    for archive in missing:
        part = _Part(archive, folder, progress)
        part.path.touch()
        with locked(part.path, "wait for it, or choose another --from"):
            _fetch(archive, part, backoff_s)
        progress.files_done += 1
        progress.tell()


@dataclass(kw_only=True)
class _Progress:
    events: Events
    num_files: int
    num_bytes: int
    files_done: int
    bytes_done: int

    def tell(self) -> None:
        self.events.progress(
            "downloading",
            files_done=self.files_done,
            files=self.num_files,
            bytes_done=self.bytes_done,
            bytes_total=self.num_bytes,
        )


def _is_there(archive: Archive, folder: Path) -> bool:
    path = folder / archive.name
    if not path.exists():
        return False
    found = path.stat().st_size
    if archive.num_bytes != found:
        message = f"`{path}` has {found} bytes, the published one {archive.num_bytes}"
        raise TrainingError(message, hint="take it away, and --download gets it again")
    return True


def _require_room(missing: Sequence[Archive], folder: Path) -> None:
    parts = [folder / f".{archive.name}.part" for archive in missing]
    there = sum(part.stat().st_size for part in parts if part.exists())
    needed = sum(archive.num_bytes for archive in missing) - there
    lacking = needed + _SPARE_BYTES - shutil.disk_usage(folder).free
    if needed > 0 and lacking > 0:
        message = f"`{folder}` lacks {lacking / 1e9:.1f} GB of room for the download"
        raise TrainingError(message, hint="free some space, or choose another --from")


class _Part:
    """The beginning of an archive, on disk, and its hash so far."""

    def __init__(self, archive: Archive, folder: Path, progress: _Progress) -> None:
        self.path = folder / f".{archive.name}.part"
        self.size = 0
        self._about = folder / f".{archive.name}.part.json"
        self._final = folder / archive.name
        self._archive = archive
        self._progress = progress
        self._hash = hashlib.new(archive.checksum.algorithm, usedforsecurity=False)

    def open(self) -> IO[bytes]:
        """Open the part for writing at its end, and hash its beginning."""
        file = self.path.open("r+b")
        while block := file.read(_BLOCK_BYTES):
            self._count(block)
        return file

    def add(self, file: IO[bytes], block: bytes) -> None:
        file.write(block)
        self._count(block)

    def restart(self, file: IO[bytes]) -> None:
        """Empty the part and its hash."""
        file.seek(0)
        file.truncate()
        self._progress.bytes_done -= self.size
        self.size = 0
        self._hash = hashlib.new(self._archive.checksum.algorithm, usedforsecurity=False)
        self._about.unlink(missing_ok=True)

    def note(self, text: str) -> None:
        """Print why the part does not grow."""
        self._progress.events.tell("note", f"{self._archive.name}: {text}")

    def validator(self, url: str) -> str | None:
        """Give the ETag or date of the server's file when its part was begun; None if unknown."""
        try:
            about: Any = parse_json(self._about.read_bytes())
            return str(about["validator"]) if about["url"] == url else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def is_of(self, url: str, validator: str | None) -> None:
        """Record the address and the validator of the part."""
        if validator is None:
            self._about.unlink(missing_ok=True)
        else:
            write_whole(self._about, json.dumps({"url": url, "validator": validator}).encode())

    def put_in_place(self, file: IO[bytes]) -> None:
        """Give the whole archive its name; raises _Unreachable where its checksum is wrong."""
        found, stated = self._hash.hexdigest(), self._archive.checksum
        if found != stated.digest:
            self.restart(file)
            message = (
                f"its {stated.algorithm.upper()} is {found}, the published one {stated.digest}"
            )
            raise _Unreachable(message)
        file.flush()
        os.fsync(file.fileno())
        self.path.replace(self._final)
        self._about.unlink(missing_ok=True)

    def _count(self, block: bytes) -> None:
        self._hash.update(block)
        self.size += len(block)
        self._progress.bytes_done += len(block)
        self._progress.tell()


def _fetch(archive: Archive, part: _Part, backoff_s: Sequence[float]) -> None:
    """Ask one mirror after another; raises TrainingError where none gives the right file."""
    failures: list[str] = []
    try:
        with part.open() as file:
            # A wrong checksum may be the fault of what an earlier program left: once more from 0.
            for url in [*archive.urls, *(archive.urls[:1] if part.size else ())]:
                try:
                    _fetch_from(url, archive, part, file, backoff_s)
                    part.put_in_place(file)
                except _Unreachable as failure:
                    failures.append(f"{_host(url)}: {failure}")
                else:
                    return
    except OSError as error:
        message = f"`{part.path}` cannot be written: {error.strerror or error}"
        raise TrainingError(
            message, hint="correct this, then type the same again to continue"
        ) from None
    message = f"`{archive.name}` was not downloaded: {'; '.join(dict.fromkeys(failures))}"
    stated = f"{archive.checksum.algorithm.upper()} {archive.checksum.digest}"
    hint = f"type the same again later, or get {archive.urls[0]} ({stated}) into {part.path.parent}"
    raise TrainingError(message, hint=hint)


def _fetch_from(
    url: str, archive: Archive, part: _Part, file: IO[bytes], backoff_s: Sequence[float]
) -> None:
    """Append the missing bytes; raises _Unreachable where the server fails try after try."""
    num_failures = 0
    while part.size < archive.num_bytes:
        before = part.size
        try:
            _transfer(url, archive, part, file)
        except _CutOff as cut:
            num_failures = 1 if part.size > before else num_failures + 1
            if num_failures > len(backoff_s):
                raise _Unreachable(str(cut)) from None
            wait_s = backoff_s[num_failures - 1]
            part.note(f"{_host(url)}: {cut}; once more in {wait_s:.0f} s")
            time.sleep(wait_s)


def _transfer(url: str, archive: Archive, part: _Part, file: IO[bytes]) -> None:
    """Request the missing bytes and append them; raises _CutOff where fewer come than announced."""
    with _open(url, part, file) as response:
        _begin(url, response, archive, part, file)
        while part.size < archive.num_bytes:
            block = _read(response)
            if not block:
                message = f"the connection ended {archive.num_bytes - part.size} bytes early"
                raise _CutOff(message)
            part.add(file, block[: archive.num_bytes - part.size])


def _open(url: str, part: _Part, file: IO[bytes]) -> http.client.HTTPResponse:
    headers = {"User-Agent": "trainyard", "Accept-Encoding": "identity"}
    if part.size:
        headers["Range"] = f"bytes={part.size}-"
        validator = part.validator(url)
        if validator:
            headers["If-Range"] = validator
    _require_safe(url)
    try:
        opener = urllib.request.build_opener(_SafeRedirects)
        request = urllib.request.Request(url, headers=headers)  # noqa: S310 - see _require_safe
        return opener.open(request, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        error.close()
        message = f"it answers {error.code} {error.reason}"
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE and part.size:
            part.restart(file)
        elif error.code not in _AGAIN:
            raise _Unreachable(message) from None
        raise _CutOff(message) from None
    except (OSError, http.client.HTTPException) as error:
        if getattr(getattr(error, "reason", None), "errno", None) == socket.EAI_NONAME:
            message = "there is no such server, or no network"
            raise _Unreachable(message) from None
        raise _CutOff(_reason(error)) from None


def _begin(
    url: str,
    response: http.client.HTTPResponse,
    archive: Archive,
    part: _Part,
    file: IO[bytes],
) -> None:
    """Check the server's answer; the part restarts where it is the whole archive."""
    ranged = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    length = response.headers.get("Content-Length", "")
    if response.status == http.client.PARTIAL_CONTENT and ranged and ranged[1]:
        start, total = int(ranged[1]), ranged[2]
        if start != part.size:
            message = f"it sends from byte {start}, not from {part.size}"
            raise _Unreachable(message)
    else:
        total = length
        if part.size:
            part.restart(file)
    if total.isascii() and total.isdigit() and len(total) < 20 and int(total) != archive.num_bytes:
        message = f"its file has {total} bytes, the published one {archive.num_bytes}"
        raise _Unreachable(message)
    etag = response.headers.get("ETag")
    # A weak one does not say that the bytes are the same.
    part.is_of(url, None if etag is None or etag.startswith("W/") else etag)


def _read(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read1(_BLOCK_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise _CutOff(_reason(error)) from None


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to https only, where nobody can read or change the answer."""

    def redirect_request(  # noqa: PLR0917 - as urllib calls it
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """Follow a redirect that keeps to https."""
        _require_safe(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _require_safe(url: str) -> None:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "https" and (parts.scheme != "http" or parts.hostname not in _LOOPBACK):
        message = f"it leads to `{url}`, and only https is used"
        raise _Unreachable(message)


def _reason(error: Exception) -> str:
    reason: object = getattr(error, "reason", None) or error
    return str(reason) or type(error).__name__


def _host(url: str) -> str:
    return urllib.parse.urlsplit(url).hostname or url
