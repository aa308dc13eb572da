"""Pictures of a few bytes that ask a decoder for gigabytes, or for a decoder of another format."""

from __future__ import annotations

import struct
import zlib

SIDE = 65500


def hostile_pictures() -> dict[str, bytes]:
    """Give them by what they are; a whole end makes each look like a picture that is not cut off."""
    return {"huge JPEG": huge_jpeg(), "huge PNG": huge_png(), "GIF": small_gif()}


def huge_png(width: int = SIDE, height: int = SIDE) -> bytes:
    """Give a PNG whose header says so many pixels, and whose data ends soon."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(bytes(1000))), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    checksum = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)


def huge_jpeg(width: int = SIDE, height: int = SIDE) -> bytes:
    """Give a progressive JPEG of so many pixels, for which decoders keep all coefficients."""
    frame = struct.pack(">BHHB", 8, height, width, 3) + b"\1\x22\0\2\x11\0\3\x11\0"
    segment = b"\xff\xc2" + struct.pack(">H", 2 + len(frame)) + frame
    scan = b"\xff\xda" + struct.pack(">H", 12) + b"\3\1\0\2\0\3\0\0\0\0"
    return b"\xff\xd8" + segment + scan + bytes(100) + b"\xff\xd9"


def small_gif() -> bytes:
    """Give a GIF of one pixel: a format that no trainer is to decode."""
    return b"GIF89a\1\0\1\0\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\1\0\1\0\0\2\2D\1\0;"
