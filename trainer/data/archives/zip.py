"""Reads the members of a zip archive in the order they lie in it, in one pass.

The directory at the end is read first; each member's own header has to say the same.
Format: PKWARE's APPNOTE.TXT 6.3, sections 4.3 and 4.4.
"""

from __future__ import annotations

import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from trainer.common.errors import TrainingError
from trainer.data.archives.file import BLOCK_BYTES, GET_AGAIN, ArchiveFile, skip, take
from trainer.data.archives.member_names import MemberNames, refusal
from trainer.data.archives.tar import Member

_LOCAL_HEADER = struct.Struct("<4s5H3I2H")
_ENCRYPTED = 0x1 | 0x40 | 0x2000
_SPECIAL_MODE = 0o7000
# Pictures hardly shrink, annotations to a quarter; a bomb to a thousandth.
MOST_GROWTH = 100
_FREE_BYTES = 64 << 20


def read_directory(path: Path) -> list[zipfile.ZipInfo]:
    """Give the members that are files, by their place; raises TrainingError unless all are safe."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = sorted(archive.infolist(), key=lambda member: member.header_offset)
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile) as error:
        message = f"`{path.name}` is not a complete zip archive: {error}"
        raise TrainingError(message, hint=GET_AGAIN) from None
    size = path.stat().st_size
    names = MemberNames(path.name)
    ends = [member.header_offset for member in members[1:]] + [size]
    files: list[zipfile.ZipInfo] = []
    for member, end in zip(members, ends, strict=True):
        why = _wrong(member, end)
        if why:
            raise refusal(path.name, _raw_name(member), why)
        if _raw_name(member).endswith("/"):
            names.folder(_raw_name(member))
        else:
            names.file(_raw_name(member))
            files.append(member)
    unpacked = sum(member.file_size for member in files)
    if unpacked > size * MOST_GROWTH + _FREE_BYTES:
        message = f"`{path.name}` is refused: {size} bytes that unpack to {unpacked}"
        raise TrainingError(message, hint=GET_AGAIN)
    return files


def zip_members(source: ArchiveFile, directory: list[zipfile.ZipInfo]) -> Iterator[Member]:
    """Give the files of `directory`; raises TrainingError for one that is not as it says there."""
    for info in directory:
        # The extra fields in front of a member may be longer than the directory says.
        if info.header_offset < source.position:
            raise refusal(source.name, member_path(info), "a member overlaps the one before")
        skip(source, info.header_offset - source.position)
        _skip_header(source, info)
        content = _content(source, info)
        end = source.position + info.compress_size
        yield Member(name=member_path(info), bytes=info.file_size, content=content)
        skip(source, end - source.position)


def member_path(info: zipfile.ZipInfo) -> str:
    """Give a member's path inside the archive."""
    return _raw_name(info).removeprefix("./")


def _raw_name(info: zipfile.ZipInfo) -> str:
    # `filename` ends at a NUL.
    return cast("str", info.orig_filename)


def _wrong(member: zipfile.ZipInfo, end: int) -> str | None:
    """Explain what is wrong with a member whose successor begins at `end`; None if nothing is."""
    mode = member.external_attr >> 16
    kind = stat.S_IFMT(mode)
    is_folder = _raw_name(member).endswith("/")
    if member.flag_bits & _ENCRYPTED:
        return "a member is encrypted"
    if kind not in {0, stat.S_IFDIR if is_folder else stat.S_IFREG}:
        return "a member is a link or a device"
    if not is_folder and mode & _SPECIAL_MODE:
        return "a member has a set-user-id mode"
    if member.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        return f"a member is compressed by method {member.compress_type}, not by deflate"
    if member.compress_type == zipfile.ZIP_STORED and member.compress_size != member.file_size:
        return "a member's size in the archive is not its own"
    if is_folder and member.file_size:
        return "a folder has content"
    if member.header_offset + _LOCAL_HEADER.size + member.compress_size > end:
        return "a member overlaps the next"
    return None


def _skip_header(source: ArchiveFile, info: zipfile.ZipInfo) -> None:
    fields = _LOCAL_HEADER.unpack(take(source, _LOCAL_HEADER.size))
    signature, flags, method, name_size, extra_size = (fields[n] for n in (0, 2, 3, 9, 10))
    name = take(source, name_size)
    skip(source, extra_size)
    encoded = _raw_name(info).encode("utf-8" if info.flag_bits & 0x800 else "cp437")
    is_same = (signature, method, name) == (b"PK\3\4", info.compress_type, encoded)
    if not is_same or flags & _ENCRYPTED:
        raise refusal(source.name, _raw_name(info), "a member's two headers say different things")


def _content(source: ArchiveFile, info: zipfile.ZipInfo) -> Iterator[memoryview]:
    packed = source.pieces(info.compress_size)
    if info.compress_type == zipfile.ZIP_DEFLATED:
        packed = _inflate(source, info, packed)
    crc = 0
    for piece in packed:
        crc = zlib.crc32(piece, crc)
        yield piece
    if crc != info.CRC:
        message = f"`{source.name}` is damaged: `{member_path(info)}` does not match its checksum"
        raise TrainingError(message, hint=GET_AGAIN)


def _inflate(
    source: ArchiveFile, info: zipfile.ZipInfo, packed: Iterator[memoryview]
) -> Iterator[memoryview]:
    stream, left = zlib.decompressobj(wbits=-15), info.file_size
    try:
        for piece in packed:
            todo: bytes | memoryview = piece
            while not stream.eof:
                block = stream.decompress(todo, BLOCK_BYTES)
                todo = stream.unconsumed_tail
                left -= len(block)
                if left < 0:
                    raise refusal(source.name, member_path(info), "a member is larger than it says")
                if block:
                    yield memoryview(block)
                # A full block may leave more of it in the stream.
                if not todo and len(block) < BLOCK_BYTES:
                    break
    except zlib.error as error:
        message = f"`{source.name}` is damaged: `{member_path(info)}`: {error}"
        raise TrainingError(message, hint=GET_AGAIN) from None
    if left or not stream.eof:
        raise refusal(source.name, member_path(info), "a member is smaller than it says")
