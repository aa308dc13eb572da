"""Encodes a sample of a tar shard as WebDataset reads it: `KEY.jpg` and `KEY.cls`.

POSIX ustar (IEEE Std 1003.1, pax, "ustar Interchange Format"). Every header field but name and size
is constant, so equal samples give equal bytes on any machine.
"""

from __future__ import annotations

from collections.abc import Iterable

BLOCK_BYTES = 512
# Two blocks of zeros end an archive.
END = bytes(2 * BLOCK_BYTES)

_MODE = b"0000644\0"
_NO_ID = b"0000000\0"
_NO_TIME = b"00000000000\0"
_MAX_NAME_BYTES = 100
_MAX_MEMBER_BYTES = 8**11 - 1


def sample_parts(key: str, members: Iterable[tuple[str, bytes]]) -> tuple[list[bytes], int]:
    """Give the bytes to write for a sample of (suffix, content), and where the first content begins.

    The place is counted from the sample's own first byte.
    """
    parts: list[bytes] = []
    for suffix, content in members:
        parts += (member_header(f"{key}.{suffix}", len(content)), content)
        if padding := -len(content) % BLOCK_BYTES:
            parts.append(bytes(padding))
    return parts, BLOCK_BYTES


def member_header(name: str, size: int) -> bytes:
    """Give the header block of a regular file."""
    encoded = name.encode("ascii")
    assert len(encoded) <= _MAX_NAME_BYTES, name
    assert size <= _MAX_MEMBER_BYTES, name
    fields = b"".join(
        (
            encoded.ljust(_MAX_NAME_BYTES, b"\0"),
            _MODE,
            _NO_ID,
            _NO_ID,
            b"%011o\0" % size,
            _NO_TIME,
        )
    )
    # The checksum is counted with blanks in its own place.
    return fields + b"%06o\0 " % (sum(fields) + _REST_SUM) + _REST


# Type "regular", no link; magic and version; no owner's names; no device; no prefix; padding.
_REST = b"".join(
    (b"0", bytes(100), b"ustar\x0000", bytes(32), bytes(32), _NO_ID, _NO_ID, bytes(155), bytes(12))
)
_REST_SUM = sum(_REST) + 8 * ord(" ")
