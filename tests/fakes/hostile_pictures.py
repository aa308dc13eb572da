"""Pictures of a few bytes that ask a decoder for gigabytes or another format, or that are damaged."""

from __future__ import annotations

import struct
import zlib

SIDE = 65500


def hostile_pictures() -> dict[str, bytes]:
    """Give them by what they are; a whole end makes each look like a picture that is not cut off."""
    return {"huge JPEG": huge_jpeg(), "huge PNG": huge_png(), "GIF": small_gif()}


def huge_png(width: int = SIDE, height: int = SIDE) -> bytes:
    """Give a PNG whose header says so many pixels, and whose data ends soon."""
    return _png(width, height, zlib.compress(bytes(1000)))


def damaged_pngs() -> dict[str, bytes]:
    """Give PNGs of 40 x 30 pixels with a whole header and a whole end, by the damage between them."""
    rows = (b"\0" + bytes(range(120))) * 30
    packed = zlib.compress(rows)
    return {
        "PNG of few rows": _png(40, 30, zlib.compress(rows[:-300])),
        "PNG cut within": _png(40, 30, packed[: len(packed) // 2]),
        "PNG of an unknown filter": _png(40, 30, zlib.compress(b"\x09" + rows[1:])),
        "PNG with a wrong sum": _png(40, 30, packed).replace(packed[-4:], b"SUMS"),
        "PNG of a damaged header": _png(40, 30, packed).replace(b"\0\x1e\x08\2", b"\0\x1e\x07\2"),
        "PNG cut off": _png(40, 30, packed)[:-30],
    }


def deep_png() -> bytes:
    """Give a PNG of 16 bits in each of three colours, which Pillow reads as 8."""
    return _png(1, 1, zlib.compress(bytes(7)), depth=16)


def _png(width: int, height: int, packed: bytes, *, depth: int = 8) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, depth, 2, 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", packed), (b"IEND", b"")
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
