"""Checks what a store, a node or another user wrote before it is used: names of files, JSON, sizes.

A name becomes a path, a blob becomes memory and text becomes a struct by these functions alone.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import msgspec

from jobs.contracts.errors import EnvironmentFailure
from jobs.host.console import size_text
from jobs.host.structs import prepared

T = TypeVar("T")
MOST_BYTES = 64 << 20  # of a file that is read whole
_BLOCK = 8 << 20
# What file systems of Linux, macOS and Windows allow one part of a path to have.
LONGEST_PART_BYTES = 255
# https://learn.microsoft.com/windows/win32/fileio/naming-a-file: devices in any folder, whatever
# follows a dot; `a:b` is a drive or a stream of its own; a dot or a blank at the end is dropped.
# trainer/data/archives/member_names.py refuses the same: tests/contract holds both to one table.
_DEVICE = r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9\u00b9\u00b2\u00b3])"
_UNLIKE_ON_WINDOWS = re.compile(
    rf":| (?:/|\Z)|(?:^|/){_DEVICE} *(?:\.[^/]*)?(?:/|\Z)", re.IGNORECASE
)
_NEVER_ON_WINDOWS = re.compile(r'[<>"|?*\x00-\x1f]|\.\Z')


def windows_objection(path: str) -> str | None:
    """Say why Windows would take a name for something else; None where it would not."""
    if _UNLIKE_ON_WINDOWS.search(path):
        return "Windows reads a colon, a device's name or a space at a part's end as something else"
    return None


def is_file_name(path: str, *, is_windows: bool = os.name == "nt") -> bool:
    """Tell whether a name with `/` between its parts is a file inside the folder it is put into."""
    return all(_is_part(part, is_windows=is_windows) for part in path.split("/"))


def parse_json(content: bytes, kind: type[T]) -> T:
    """Parse JSON; raises msgspec.DecodeError, whatever is wrong with it."""
    try:
        return msgspec.json.decode(content, type=prepared(kind))
    except RecursionError:
        message = "it is nested too deeply"
    except UnicodeDecodeError:
        message = "it is not UTF-8"
    raise msgspec.DecodeError(message)


def read_small(path: Path | str, most_bytes: int = MOST_BYTES) -> bytes:
    """Read a whole file; raises OSError, also for a pipe, a device or more than `most_bytes`."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags)
    with open(descriptor, "rb") as file:  # noqa: PTH123 (a descriptor)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a file", str(path))
        if status.st_size > most_bytes:
            size = f"it has {status.st_size} bytes, more than the limit of {most_bytes}"
            raise OSError(errno.EFBIG, size, str(path))
        return file.read(most_bytes)


def read_json(path: Path, kind: type[T]) -> T:
    """Read and parse a file; raises OSError, msgspec.DecodeError."""
    return parse_json(read_small(path), kind)


def parse_rows(rows: Iterable[Any], kind: type[T]) -> list[T]:
    """Convert the rows of a list of Azure's; one that others made otherwise is left out."""
    found: list[T] = []
    for row in rows:
        try:
            found.append(msgspec.convert(_without_nulls(row), type=prepared(kind)))
        except msgspec.ValidationError:
            continue
    return found


def parse(answer: Any, kind: type[T], *, what: str) -> T:
    """Convert an answer of Azure's, in which null is as good as left out; raises EnvironmentFailure.

    `what` says what was tried, as `listing nodes`.
    """
    try:
        return msgspec.convert(_without_nulls(answer), type=prepared(kind))
    except msgspec.ValidationError as error:
        message = f"{what}: this version cannot read Azure's answer: {error}"
        raise EnvironmentFailure(message, hint="use a newer version of `launch`") from None


class Ranges(Protocol):
    """Reads ranges of blobs, as every store does."""

    def read_range(self, name: str, start: int, end: int) -> bytes | None:
        """Give these bytes (`end` is not among them), fewer at the blob's end; None where it is not."""
        ...


class TooLong(EnvironmentFailure):
    """A blob is longer than what it is for."""


def read_bounded(blobs: Ranges, name: str, longest: int) -> bytes | None:
    """Read a blob whole, None where there is none; raises TooLong for more than `longest` bytes."""
    content = b""
    while len(content) <= longest:
        start, end = len(content), min(len(content) + _BLOCK, longest + 1)
        block = blobs.read_range(name, start, end)
        if block is None and not start:
            return None
        content += block or b""
        if len(content) < end:
            return content
    message = f"`{name}` in the store is longer than {size_text(longest)}, more than a run writes"
    raise TooLong(message, hint="check who may write there, and delete it")


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        return {key: _without_nulls(each) for key, each in found.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in cast("list[Any]", value)]
    return value


def _is_part(part: str, *, is_windows: bool) -> bool:
    if part in ("", ".", "..") or "\\" in part or "\0" in part:
        return False
    if len(part.encode(errors="surrogatepass")) > LONGEST_PART_BYTES:
        return False
    return not (is_windows and (windows_objection(part) or _NEVER_ON_WINDOWS.search(part)))
