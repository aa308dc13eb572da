"""Reads a job's requirements file: what it names of the job's folder decides what a layer holds."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from jobs.contracts.errors import LaunchError

MOST_BYTES = 1 << 20
_INCLUDES = ("-r", "--requirement", "-c", "--constraint")
_LINKS = ("-f", "--find-links")
_EDITABLE = ("-e", "--editable")
_ARCHIVES = (".whl", ".tar.gz", ".zip")
_OPTION = re.compile(r"(?P<option>-[rcfe]|--[a-z-]+)(?:[ \t=]+|(?<=-[rcfe]))(?P<value>.*)")
_COMMENT = re.compile(r"(^|\s)#.*")


def fingerprint(folder: Path, name: str) -> list[str]:
    """List the files that decide what a requirements file installs, each with its SHA-256.

    These are the file, what it includes by `-r` and `-c`, and the archives of the folder that it names.
    Raises LaunchError for a file that is not there or lies elsewhere, and for what no layer can hold.
    """
    found: dict[str, str] = {}
    waiting = [_inside(folder, folder / name, name)]
    while waiting:
        path = waiting.pop()
        place = path.relative_to(folder.resolve()).as_posix()
        if place in found:
            continue
        found[place] = _digest(path)
        for line in _lines(path, place):
            includes, archives = _named(line, path, folder, place)
            waiting += includes
            for each in archives:
                found[each.relative_to(folder.resolve()).as_posix()] = _digest(each)
    return [f"{place} {digest}" for place, digest in sorted(found.items())]


def _lines(path: Path, place: str) -> Iterator[str]:
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"the requirements `{place}` are not UTF-8 text (byte {error.start})"
        raise LaunchError(message, hint="save the file as UTF-8") from None
    if len(content) > MOST_BYTES:
        message = f"the requirements `{place}` have more than {MOST_BYTES >> 20} MB"
        raise LaunchError(message, hint="name a requirements file")
    for line in text.replace("\\\r\n", " ").replace("\\\n", " ").splitlines():
        if plain := _COMMENT.sub("", line).strip():
            yield plain


def _named(line: str, path: Path, folder: Path, place: str) -> tuple[list[Path], list[Path]]:
    """Find the files that a line includes, and the archives that it takes from the folder."""
    option = _OPTION.match(line)
    if option is None:
        return [], _archives(line, folder, place)
    value = option["value"].strip().strip("\"'")
    if option["option"] in _EDITABLE:
        message = f"{place}: `{line}`: the layer is shared by runs, so it has no editable package"
        raise LaunchError(message, hint=f"setup: [pip install {shlex.quote(value)}]")
    if option["option"] in _INCLUDES:
        if "://" in value:
            message = f"{place}: `{line}` lies outside the job's folder"
            raise LaunchError(message, hint="copy the file beside the job file")
        return [_inside(folder, path.parent / value, value, place)], []
    if option["option"] in _LINKS and "://" not in value:
        beside = path.parent / value
        links = _inside(folder, beside if beside.exists() else folder / value, value, place)
        files = sorted(links.iterdir()) if links.is_dir() else [links]
        return [], [each for each in files if each.name.endswith(_ARCHIVES)]
    return [], []


def _archives(line: str, folder: Path, place: str) -> list[Path]:
    """Find the archive of the job's folder that a requirement is."""
    target = line.partition(" @ ")[2] or line
    # As pip has it: a URL may hold a `;`, so that its marker needs a blank.
    marker = r"\s;|;\s" if "://" in target else ";"
    target = re.split(rf"\s--|{marker}", target)[0].strip()
    target = re.sub(r"\[[\w.,-]*\]\Z", "", target.removeprefix("file://"))
    is_path = target.startswith((".", "/")) or "/" in target or target.endswith(_ARCHIVES)
    if not is_path or "://" in target:
        return []
    path = _inside(folder, folder / target, target, place)
    if path.is_dir():
        message = f"{place}: `{target}` is a folder, and a layer holds built packages only"
        raise LaunchError(message, hint=f"setup: [pip install {shlex.quote(target)}]")
    return [path]


def _inside(folder: Path, path: Path, name: str, place: str | None = None) -> Path:
    """Resolve a path; refuses one outside of the folder that travels, or of nothing."""
    where = f"{place}: " if place else ""
    try:
        resolved = path.resolve()
        exists = resolved.exists() and (resolved.is_file() or place is not None)
    except (OSError, ValueError, RuntimeError):
        resolved, exists = path, False
    if exists and resolved.is_relative_to(folder.resolve()):
        return resolved
    if exists:
        message = f"{where}`{name}` is outside the folder that travels ({folder})"
        raise LaunchError(
            message, hint="copy it into that folder, or name a larger one: `code: ..`"
        )
    message = f"{where}`{name}` is not a file in {folder}"
    raise LaunchError(message, hint=f"ls {shlex.quote(str(folder))}")


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        message = f"cannot read `{path}`: {error.strerror}"
        raise LaunchError(message, hint=f"ls -l {shlex.quote(str(path))}") from None
