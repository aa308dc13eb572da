"""What the page of a run shows beside what `launch show` tells: curves, outputs, configuration."""

from __future__ import annotations

import mimetypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from starlette.responses import FileResponse, Response

from jobs.contracts.errors import NotFound
from jobs.contracts.spec import RunState

# What a browser shows as a picture; of an SVG only within a page, where it runs no script.
PICTURES = {".png", ".jpg", ".jpeg", ".gif", ".webp", ".svg"}
MOST_OUTPUTS = 500
MOST_PICTURES = 24
# Of a file that somebody opens by its address: neither scripts nor anything from elsewhere.
FILE_POLICY = "sandbox; default-src 'none'; img-src 'self' data:; style-src 'unsafe-inline'"


def is_on(run: Mapping[str, Any]) -> bool:
    """Whether a run is not over."""
    return not RunState(run["state"]).is_terminal()


def labels_of(reports: Sequence[Mapping[str, Any]]) -> list[str]:
    """List the figures that any of the runs has, in order."""
    names = [
        f"{each['split']} {each['name']}".strip()
        for report in reports
        for each in report["metrics"]
    ]
    return list(dict.fromkeys(names))


def configuration(run: Mapping[str, Any]) -> str:
    """Give the record of what a run was made of, as JSON."""
    return msgspec.json.format(msgspec.json.encode(run["record"]), indent=2).decode()


def outputs_of(run: Mapping[str, Any]) -> dict[str, Any]:
    """List the files that a run wrote and are here; pictures first, and apart."""
    folder = _outputs(run)
    found: list[dict[str, Any]] = []
    if folder.is_dir():
        for path in sorted(folder.rglob("*")):
            if len(found) == MOST_OUTPUTS:
                break
            if path.is_file() and _is_inside(path, folder):
                name = path.relative_to(folder).as_posix()
                found.append({"name": name, "bytes": path.stat().st_size})
    pictures = [each for each in found if Path(each["name"]).suffix.lower() in PICTURES]
    return {"files": found, "pictures": pictures[:MOST_PICTURES]}


def file_of(run: Mapping[str, Any], name: str) -> Response:
    """Give a file that a run wrote; raises NotFound for one that is not among its outputs."""
    folder = _outputs(run)
    path = folder / name
    if not (path.is_file() and _is_inside(path, folder)):
        message = f"run {run['id']} has no output `{name}` here"
        raise NotFound(message, hint=f"launch fetch {run['id']}")
    is_picture = path.suffix.lower() in PICTURES
    kind = mimetypes.guess_type(path.name)[0] if is_picture else "application/octet-stream"
    return FileResponse(
        path,
        media_type=kind,
        filename=path.name,
        content_disposition_type="inline" if is_picture else "attachment",
        headers={"content-security-policy": FILE_POLICY},
    )


def _outputs(run: Mapping[str, Any]) -> Path:
    return Path(run["run_dir"], "outputs")


def _is_inside(path: Path, folder: Path) -> bool:
    """Whether a file lies in the folder, wherever links lead."""
    return path.resolve().is_relative_to(folder.resolve())
