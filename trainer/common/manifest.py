"""Encodes and parses a checkpoint's manifest: its files' sizes and digests, and its own.

Every format, also one that is newer than this program, has `format`, and `sha256` of all the rest:
so a flipped bit is never taken for another format.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NoReturn, cast

FORMAT = 1
MANIFEST = "manifest.json"
# Names inside the checkpoint's folder, and nowhere else.
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
SHA256 = re.compile(r"[0-9a-f]{64}")


class BrokenCheckpoint(Exception):
    """A file of a checkpoint that is not what the manifest says; names it and the difference."""

    def __init__(self, file: str, why: str) -> None:
        super().__init__(f"{file}: {why}")


class Unreadable(BrokenCheckpoint):
    """The disk did not give the file; another time it may."""


class UnknownFormat(Exception):
    """A whole manifest of a format that this program cannot read: `number`."""

    def __init__(self, number: int) -> None:
        super().__init__(f"format {number}")
        self.number = number


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """Size and digest (64 hexadecimal digits) of one file."""

    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A manifest of FORMAT; `saved` is ISO 8601 in UTC, `about` what the program keeps there."""

    step: int
    saved: str
    about: Mapping[str, Any]
    files: Mapping[str, FileEntry]

    def encode(self) -> bytes:
        """Give the manifest file's content."""
        content = {
            "format": FORMAT,
            "step": self.step,
            "saved": self.saved,
            "about": self.about,
            "files": {name: asdict(entry) for name, entry in self.files.items()},
        }
        # As a reader will see it: JSON knows no tuples, and no keys but strings.
        content = json.loads(json.dumps(content, allow_nan=False))
        return json.dumps({**content, "sha256": _digest(content)}, indent=2).encode() + b"\n"


def parse_manifest(data: bytes) -> Manifest:
    """Read a manifest file's content; nothing in it is believed before its digest is right.

    Raises BrokenCheckpoint, and UnknownFormat for a whole one of another format. A digest is no
    signature: names and types are checked as well, since somebody else may have made the folder.
    """
    try:
        read: Any = json.loads(data, parse_constant=_refuse)
        content = _object(read, "JSON object")
        is_whole = content.pop("sha256", None) == _digest(content)
    except (ValueError, RecursionError) as error:
        raise BrokenCheckpoint(MANIFEST, str(error)) from None
    if not is_whole:
        raise BrokenCheckpoint(MANIFEST, "its sha256 is not that of its content")
    number = _count(content, "format")
    if number != FORMAT:
        raise UnknownFormat(number)
    files = _object(content.get("files"), "files")
    return Manifest(
        step=_count(content, "step"),
        saved=_text(content, "saved"),
        about=_object(content.get("about"), "about"),
        files={name: _parse_entry(name, entry) for name, entry in files.items()},
    )


def require_file_name(name: str) -> None:
    """Raises BrokenCheckpoint where the name could lead out of the folder or hide the manifest."""
    if not FILE_NAME.fullmatch(name) or name == MANIFEST:
        raise BrokenCheckpoint(MANIFEST, f"{name!r} is not a valid name of a checkpoint's file")


def _parse_entry(name: str, entry: Any) -> FileEntry:
    require_file_name(name)
    content = _object(entry, f"entry of {name}")
    sha256 = _text(content, "sha256")
    if not SHA256.fullmatch(sha256):
        raise BrokenCheckpoint(MANIFEST, f"no sha256 of {name}")
    return FileEntry(bytes=_count(content, "bytes"), sha256=sha256)


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BrokenCheckpoint(MANIFEST, f"no {what}")
    return cast("dict[str, Any]", value)


def _text(content: Mapping[str, Any], key: str) -> str:
    value = content.get(key)
    if not isinstance(value, str):
        raise BrokenCheckpoint(MANIFEST, f"no {key}")
    return value


def _count(content: Mapping[str, Any], key: str) -> int:
    value = content.get(key)
    # To Python true is a number, too.
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise BrokenCheckpoint(MANIFEST, f"no {key}")
    return value


def _digest(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _refuse(constant: str) -> NoReturn:
    message = f"{constant} is not JSON"
    raise ValueError(message)
