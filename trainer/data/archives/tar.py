"""Reads the members of a tar archive as they come: ustar, GNU's long names and pax headers.

Only regular files and folders are let through: a data set needs neither links nor devices.
Formats: POSIX.1-2017, pax, section "pax Interchange Format"; GNU tar manual, "Basic Tar Format".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainer.common.errors import TrainingError
from trainer.data.archives.file import GET_AGAIN, Source, skip, take
from trainer.data.archives.member_names import MemberNames, refusal

RECORD_BYTES = 512
# A path of 1,024 bytes and what some writers put beside it.
MOST_HEADER_BYTES = 64 << 10
_ZEROS = bytes(RECORD_BYTES)
_REFUSED_KINDS = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a device",
    b"4": "a device",
    b"6": "a pipe",
    b"S": "a sparse file",
}
_PLAIN_FILE = (b"0", b"\0", b"7")
# Set-user-id, set-group-id and sticky.
_SPECIAL_MODE = 0o7000


@dataclass(slots=True, kw_only=True)
class Member:
    """A file in an archive; `content` may be read until the next one is asked for."""

    name: str
    bytes: int
    content: Iterator[memoryview]


@dataclass(slots=True, kw_only=True)
class _Header:
    kind: bytes
    name: str
    bytes: int
    mode: int


def tar_members(source: Source) -> Iterator[Member]:
    """Give the files of a tar archive; raises TrainingError for anything that is not safe or whole."""
    names = MemberNames(source.name)
    said: dict[str, str] = {}
    while (record := take(source, RECORD_BYTES)) != _ZEROS:
        header = _header(source, record)
        if header.kind in {b"L", b"x", b"g"}:
            said |= _said_before(source, header)
            continue
        name, size = said.pop("path", header.name), header.bytes
        if "size" in said:
            size = _pax_size(source, name, said.pop("size"))
        said.clear()
        if header.kind == b"5" or (header.kind == b"\0" and name.endswith("/")):
            _require(source, name, size == 0, "a folder has content")
            names.folder(name)
            continue
        what = _REFUSED_KINDS.get(header.kind, f"of kind {header.kind!r}")
        _require(source, name, header.kind in _PLAIN_FILE, f"a member is {what}")
        _require(source, name, not header.mode & _SPECIAL_MODE, "a member has a set-user-id mode")
        end = source.position + size
        yield Member(name=names.file(name), bytes=size, content=source.pieces(size))
        skip(source, end + -size % RECORD_BYTES - source.position)
    if any(bytes(piece).strip(b"\0") for piece in source.rest()):
        message = f"`{source.name}` is refused: something follows the end of the archive"
        raise TrainingError(message, hint="one tar archive a file, as `tar -cf` writes it")


def _header(source: Source, record: bytes) -> _Header:
    stated = _number(record[148:156])
    counted = sum(record) - sum(record[148:156]) + 8 * ord(" ")
    if stated != counted:
        message = f"`{source.name}` is damaged: there is no tar header at byte {source.position}"
        raise TrainingError(message, hint=GET_AGAIN)
    name = _text(source, record[:100])
    # GNU's own format keeps other things where ustar has the name's beginning.
    if record[257:263] == b"ustar\0" and record[345]:
        name = f"{_text(source, record[345:500])}/{name}"
    size, mode = _number(record[124:136]), _number(record[100:108])
    _require(source, name, size is not None and size >= 0, "a size is not a number")
    _require(source, name, mode is not None, "a mode is not a number")
    return _Header(kind=record[156:157], name=name, bytes=size or 0, mode=mode or 0)


def _number(field: bytes) -> int | None:
    """Parse octal digits, or GNU's form for large numbers: a first byte of 0x80, then binary."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b" \0")
    if not digits:
        return 0
    return int(digits, 8) if digits.isdigit() and not set(digits) & set(b"89") else None


def _text(source: Source, field: bytes) -> str:
    text = field.split(b"\0", 1)[0]
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise refusal(source.name, text, "a name is not Unicode text") from None


def _said_before(source: Source, header: _Header) -> dict[str, str]:
    """Read what a header announces of the next member: its long name, or pax records."""
    fits = header.bytes <= MOST_HEADER_BYTES
    _require(source, header.name, fits, f"a header of {header.bytes} bytes precedes a member")
    content = take(source, header.bytes)
    skip(source, -header.bytes % RECORD_BYTES)
    if header.kind == b"L":
        return {"path": _text(source, content)}
    said = _pax_records(source, header.name, content)
    odd = [key for key in said if key == "linkpath" or key.startswith("GNU.sparse")]
    _require(source, header.name, not odd, "a member is a link or a sparse file")
    # A name or size for all members that follow is never right.
    is_global = header.kind == b"g" and ("path" in said or "size" in said)
    _require(source, header.name, not is_global, "a header names all members alike")
    return {key: said[key] for key in ("path", "size") if key in said}


def _pax_records(source: Source, name: str, content: bytes) -> dict[str, str]:
    """Read `LENGTH KEY=VALUE` lines; LENGTH counts the whole line."""
    said: dict[str, str] = {}
    while content:
        digits, _, _ = content[:16].partition(b" ")
        length = int(digits) if digits.isdigit() else 0
        record = content[:length]
        is_whole = length > len(digits) + 2 and len(record) == length and record.endswith(b"\n")
        key, equals, value = record[len(digits) + 1 : -1].partition(b"=")
        _require(source, name, is_whole and bool(equals), "a pax header is damaged")
        if key in {b"path", b"size", b"linkpath"}:
            # A NUL must not end the name early.
            _require(source, name, b"\0" not in value, "a name has a NUL in it")
            said[key.decode()] = _text(source, value)
        elif key.startswith(b"GNU.sparse"):
            said["GNU.sparse"] = ""
        content = content[length:]
    return said


def _pax_size(source: Source, name: str, text: str) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) < 20
    _require(source, name, is_number, "a size is not a number")
    return int(text)


def _require(source: Source, name: str, holds: bool, why: str) -> None:
    if not holds:
        raise refusal(source.name, name, why)
