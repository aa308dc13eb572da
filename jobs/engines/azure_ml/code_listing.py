"""List the code that travels with a job of Azure ML: which files, why, and under which name.

The name is of the content, so equal code goes up once, and nodes run nothing else under it. What a
blob has no place for (modes, links, empty folders) is written down in a file of its own, where there
is any of it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from jobs.blobs.files import Outgoing, outgoing
from jobs.contracts.errors import NotFound
from jobs.contracts.spec import JobSpec
from jobs.engines.azure_ml.node_job import SNAPSHOT_FILE, snapshot_file
from jobs.engines.base import CodeFile, CodeListing
from jobs.rank.code import LIST_FILE, OURS, SHAPE_FILE
from jobs.runs.code import Entry, travelling, unreadable

# What a rule of the SDKs leaves out is decided before, and an engine may put its own in its place.
IGNORE_FILE = ".amlignore"
_REASONS = {
    SNAPSHOT_FILE: "starts each rank",
    SHAPE_FILE: "modes, links and empty folders",
    LIST_FILE: "what nodes check the code by",
}


class Shape(Struct, frozen=True, kw_only=True):
    """SHAPE_FILE: links and what they lead to, files that can be run, folders without a file."""

    links: dict[str, str]
    executable: tuple[str, ...]
    folders: tuple[str, ...]


class Code(Struct, frozen=True, kw_only=True):
    """The code as it was read: the user's files, and what we put beside them."""

    listing: CodeListing
    files: tuple[Outgoing, ...]
    made: dict[str, bytes]


def read_code(spec: JobSpec, *, exclude: tuple[Path, ...] = ()) -> Code:
    """Read each file that travels, for its digest; raises LaunchError for one that cannot be read.

    `exclude` are folders that never travel.
    """
    found = _look(spec, exclude)
    made = {SNAPSHOT_FILE: snapshot_file()}
    if found.links or found.executable or found.folders:
        shape = Shape(
            links=found.links, executable=tuple(found.executable), folders=tuple(found.folders)
        )
        made[SHAPE_FILE] = msgspec.json.encode(shape, order="deterministic")
    digests = found.digests | {n: hashlib.sha256(content).digest() for n, content in made.items()}
    made[LIST_FILE] = list_file(digests)
    listed = [
        *(CodeFile(name=each.name, bytes=each.bytes, reason=why) for each, why in found.files),
        *(CodeFile(name=n, bytes=len(content), reason=_REASONS[n]) for n, content in made.items()),
    ]
    return Code(
        listing=CodeListing(
            name=code_name(made[LIST_FILE]), files=tuple(listed), left_out=tuple(found.left_out)
        ),
        files=tuple(each for each, _ in found.files),
        made=made,
    )


def list_file(digests: Mapping[str, bytes]) -> bytes:
    """Make the content of LIST_FILE, by which a node knows each file (pure)."""
    told = {name: digest.hex() for name, digest in digests.items()}
    return msgspec.json.encode(told, order="deterministic")


def code_name(files: bytes) -> str:
    """Name an upload by its list of files: the same for the same content (pure)."""
    return f"trainyard-{hashlib.sha256(files).hexdigest()[:40]}"


class _Found:
    """Files, links and folders found in the code."""

    def __init__(self) -> None:
        self.files: list[tuple[Outgoing, str]] = []
        self.digests: dict[str, bytes] = {}
        self.links: dict[str, str] = {}
        self.executable: list[str] = []
        self.folders: list[str] = []
        self.left_out: list[str] = []


def _look(spec: JobSpec, exclude: tuple[Path, ...]) -> _Found:
    found = _Found()
    if spec.code is None:
        return found
    source = Path(spec.code)
    if not source.is_dir():
        message = f"`code: {source}` is not a folder"
        raise NotFound(message, hint="paths in a job file are relative to that file")
    for entry in sorted(travelling(source, spec.code_only, exclude)):
        if entry.name.split("/", 1)[0] not in (OURS, IGNORE_FILE):
            _take(entry, source, spec, found)
    filled = {parent for name in (*found.digests, *found.links) for parent in _parents(name)}
    found.folders = [each for each in found.folders if each not in filled]
    return found


def _take(entry: Entry, source: Path, spec: JobSpec, found: _Found) -> None:
    path = source / entry.name
    if entry.kind == "folder":
        found.folders.append(entry.name.rstrip("/"))
    elif entry.kind == "left out":
        found.left_out.append(entry.name)
    elif entry.kind == "link":
        found.links[entry.name] = entry.aim
    else:
        try:
            file, digest = outgoing(entry.name, path.resolve())
            is_program = os.name == "posix" and path.stat().st_mode & 0o111
        except OSError as error:
            raise unreadable(path, error) from error
        found.files.append((file, _reason(entry.name, spec)))
        found.digests[entry.name] = digest
        if is_program:
            found.executable.append(entry.name)


def _reason(name: str, spec: JobSpec) -> str:
    words = spec.command
    if len(words) > 1 and name == words[1]:
        return "the script"
    if len(words) > 2 and words[1] == "-m" and name == words[2].replace(".", "/") + ".py":
        return "the module"
    part = next((each for each in spec.code_only if name.startswith(f"{each.rstrip('/')}/")), None)
    return f"in `{part}`, which the module is of" if part else "in `code`"


def _parents(name: str) -> list[str]:
    parts = name.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
