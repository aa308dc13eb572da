"""What the page of a run shows beside what `launch show` tells: curves, outputs, configuration."""

from __future__ import annotations

import mimetypes
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote_to_bytes, urlencode

import msgspec
from starlette.datastructures import Headers
from starlette.responses import FileResponse, Response
from starlette.types import Message, Receive, Scope, Send

from jobs.contracts.errors import NotFound
from jobs.contracts.spec import RankError, RunHandle, RunState
from jobs.host.structs import prepared
from jobs.runs.failure import words_in_log

# What a browser shows as a picture; of an SVG only within a page, where it runs no script.
PICTURES = {".png", ".jpg", ".jpeg", ".gif", ".webp", ".svg"}
MOST_OUTPUTS = 500
# Files and folders that are looked at for them.
MOST_ENTRIES = 5000
MOST_PICTURES = 24
# Characters of a line by which it is found in the log.
LONGEST_GREP = 200
# Of a file that somebody opens by its address: neither scripts nor anything from elsewhere.
FILE_POLICY = "sandbox; default-src 'none'; img-src 'self' data:; style-src 'unsafe-inline'"


def is_on(run: Mapping[str, Any]) -> bool:
    """Tell whether a run is not over."""
    return not RunState(run["state"]).is_terminal()


def labels_of(reports: Sequence[Mapping[str, Any]]) -> list[str]:
    """List the figures that any of the runs has, in order."""
    names = [
        f"{each['split']} {each['name']}".strip()
        for report in reports
        for each in report["metrics"]
    ]
    return list(dict.fromkeys(names))


def evidence_of(run: Mapping[str, Any], address: str) -> dict[str, Any] | None:
    """Give the `address` of the line in the log that says why a run failed; None where it was no rank.

    Of a rank that said nothing of it itself, as one that a signal ended, it is that of its last lines.
    """
    if run["error"] is None or run["error"]["rank"] is None:
        return None
    words = words_in_log(msgspec.convert(run["error"], prepared(RankError)))
    asked = {"rank": str(run["error"]["rank"])}
    if words is not None:
        asked["grep"] = re.escape(words.strip()[:LONGEST_GREP])
    return {"address": f"{address}?{urlencode(asked)}#h-log", "is_line": words is not None}


def fetched_to(run: str) -> Path:
    """Name the folder into which a run is fetched: the one of `launch fetch`, by its absolute path."""
    return Path.cwd() / run


def outputs_of(run: str, run_dir: str, address: str) -> dict[str, Any]:
    """List the files that a run wrote and are here, with their addresses; pictures first, and apart.

    They are in its folder, or where it was fetched. Looks at a bounded number of files.
    """
    found: list[dict[str, Any]] = []
    is_all = True
    for folder in _folders(run, run_dir):
        entries = _files(folder)
        for path, size in islice(entries, MOST_OUTPUTS):
            name = path.relative_to(folder).as_posix()
            place = f"{address}/outputs/{quote(os.fsencode(name))}"
            found.append({"name": name, "bytes": size, "address": place})
        is_all = next(entries, None) is None
        if found:
            break
    pictures = [each for each in found if Path(each["name"]).suffix.lower() in PICTURES]
    return {"files": found, "pictures": pictures[:MOST_PICTURES], "is_all": is_all}


def name_in(raw_path: bytes) -> str:
    """Read the name of an output out of an address; file names are bytes, not always UTF-8."""
    return os.fsdecode(unquote_to_bytes(raw_path.partition(b"/outputs/")[2].partition(b"?")[0]))


def file_of(run: RunHandle, name: str) -> Response:
    """Give a file that a run wrote; raises NotFound for one that is not among its outputs."""
    for folder in _folders(run.id, run.run_dir):
        path = folder / name
        try:
            if not (path.is_file() and _is_inside(path, folder)):
                continue
            status = path.stat()
        except (OSError, ValueError):  # it has gone; a name with a NUL
            continue
        is_picture = path.suffix.lower() in PICTURES
        kind = mimetypes.guess_type(path.name)[0] if is_picture else None
        return _AsLongAsItWas(
            path,
            stat_result=status,
            media_type=kind or "application/octet-stream",
            filename=os.fsencode(path.name).decode(errors="replace"),
            content_disposition_type="inline" if is_picture else "attachment",
            headers={"content-security-policy": FILE_POLICY},
        )
    message = f"run {run.id} has no output {name!r} here"
    raise NotFound(message, hint=f"launch fetch {run.id}")


class _AsLongAsItWas(FileResponse):
    """Sends as much of a file as its head says: a file that grows meanwhile would break off."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer, or the part that is asked for."""
        left = 0

        async def send_what_is_left(message: Message) -> None:
            nonlocal left
            if message["type"] == "http.response.start":
                left = int(Headers(raw=message["headers"])["content-length"])
            else:
                body = message.get("body", b"")[:left]
                left -= len(body)
                message = {**message, "body": body}
            await send(message)

        await super().__call__(scope, receive, send_what_is_left)


def _folders(run: str, run_dir: str) -> list[Path]:
    return [Path(run_dir, "outputs"), fetched_to(run) / "outputs"]


def _files(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield files within a folder with their sizes, sorted in each folder; none that a link leads out to."""
    left = MOST_ENTRIES
    todo = [folder]
    while todo and left > 0:
        try:
            with os.scandir(todo.pop()) as entries:
                found = sorted(islice(entries, left), key=lambda each: each.name)
        except OSError:  # it has gone, or never was
            continue
        left -= len(found)
        todo += [Path(each.path) for each in reversed(found) if each.is_dir(follow_symlinks=False)]
        for each in found:
            path = Path(each.path)
            try:
                if each.is_file() and _is_inside(path, folder):
                    yield path, each.stat().st_size
            except OSError:  # it has gone meanwhile
                continue


def _is_inside(path: Path, folder: Path) -> bool:
    """Whether a file lies in the folder, wherever links lead."""
    return path.resolve().is_relative_to(folder.resolve())
