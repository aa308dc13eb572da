"""Reads format, size and channels of a JPEG or PNG from its first bytes, without decoding it.

JPEG: ITU-T T.81, annex B (markers and the frame header). PNG: W3C PNG, 5.2 and 11.2 (IHDR).
What a picture is, its bytes say: ImageNet has a PNG under the name of a JPEG.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from trainer.common.errors import TrainingError

PictureFormat = Literal["JPEG", "PNG"]

JPEG_START, JPEG_END = b"\xff\xd8", b"\xff\xd9"
# A PNG ends with an empty chunk and its checksum, which are always the same.
PNG_START, PNG_END = b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"
# What a decoder may be asked for, 256 MiB in three colours; Pillow's own bound. A header of a few bytes
# may ask for 13 GB.
MOST_PIXELS = (1 << 30) // 12
# SOF0 to SOF15 but DHT, JPG and DAC, which lie between them: baseline, progressive, lossless, ...
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
# RST0 to RST7 and TEM have neither length nor content.
_BARE = frozenset({*range(0xD0, 0xD8), 0x01})
_SCAN, _END = 0xDA, 0xD9
# By IHDR's colour type: grey, RGB, palette, grey and alpha, RGB and alpha.
_PNG_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}

# In IHDR, behind the start, the chunk's length and name, width and height.
_PNG_DEPTH_AT = len(PNG_START) + 16


class CorruptPicture(TrainingError):
    """A picture whose bytes no decoder can read; `message` names it without a hint."""

    def __init__(
        self, picture: str, reason: str, *, hint: str = "get the file again, or take it away"
    ) -> None:
        super().__init__(reason, hint=hint)
        self.picture = picture

    def __reduce__(self) -> tuple[Callable[..., CorruptPicture], tuple[str, str]]:
        """Pickle what it was made of: it comes from other processes, too."""
        return functools.partial(CorruptPicture, hint=self.hint or ""), (self.picture, self.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureHeader:
    """A picture's format and size as stored, before any turn that EXIF asks for."""

    format: PictureFormat
    width: int
    height: int
    channels: int

    @property
    def suffix(self) -> str:
        """The usual suffix of its file's name, without the dot."""
        return "jpg" if self.format == "JPEG" else "png"


def parse_header(data: bytes, name: str) -> PictureHeader:
    """Look at an encoded picture; `name` is for messages.

    Raises TrainingError where it is no JPEG or PNG, or where its header or its end is missing.
    """
    header, at = _find_header(data, name)
    # A JPEG's thumbnail within an earlier segment has an end of its own.
    if data.rfind(JPEG_END if header.format == "JPEG" else PNG_END, at) < 0:
        raise _unusable(name, f"the {header.format} has no end: it is cut off")
    return header


def require_decodable(data: bytes, name: Callable[[], str]) -> None:
    """Raise TrainingError for what a decoder must not see: another format, or too many pixels.

    A header that cannot be read is left to the decoder, which cannot read it either, and says more.
    """
    if not data.startswith((JPEG_START, PNG_START)):
        raise not_whole(name(), "Unsupported image file")
    try:
        header, _ = _find_header(data, "")
    except TrainingError:
        return
    require_few_pixels(header.width, header.height, name)


def require_few_pixels(width: int, height: int, name: Callable[[], str]) -> None:
    """Raise TrainingError where a decoded picture would take more memory than any needs."""
    if width * height > MOST_PIXELS:
        raise not_whole(name(), f"{width} x {height} pixels are more than {MOST_PIXELS:,}")


def is_deep_png(data: bytes) -> bool:
    """Tell whether a PNG has more than 8 bits a colour, which Pillow cuts to 8 where it is no grey."""
    return data[_PNG_DEPTH_AT : _PNG_DEPTH_AT + 1] > b"\x08"


def not_whole(name: str, why: str) -> CorruptPicture:
    """Give the error for a picture that cannot be decoded."""
    return CorruptPicture(name, f"`{name}` is not a complete picture: {why}")


def too_deep(name: str) -> CorruptPicture:
    """Give the error for a picture whose values do not fit into bytes."""
    message = f"`{name}` has more than 8 bits a colour"
    return CorruptPicture(name, message, hint="convert it to 8 bits")


def _find_header(data: bytes, name: str) -> tuple[PictureHeader, int]:
    """Give the header, and where behind it the end is to be looked for."""
    if data.startswith(JPEG_START):
        return _parse_jpeg(data, name)
    if data.startswith(PNG_START):
        return _parse_png(data, name), 0
    raise _unusable(name, "it is empty" if not data else "it is neither a JPEG nor a PNG")


def _parse_jpeg(data: bytes, name: str) -> tuple[PictureHeader, int]:
    at = len(JPEG_START)
    while True:
        # Bytes between segments are skipped as decoders do; any number of FF may lead a marker.
        at = data.find(b"\xff", at)
        while 0 <= at < len(data) and data[at] == 0xFF:
            at += 1
        if at < 0 or at >= len(data):
            raise _unusable(name, "the JPEG ends within its header")
        marker = data[at]
        at += 1
        if marker == 0 or marker in _BARE:
            continue
        if marker in (_SCAN, _END):
            raise _unusable(name, "the JPEG has no frame header")
        if marker in _FRAMES:
            return _parse_frame(data, at, name), at
        at += max(2, int.from_bytes(data[at : at + 2], "big"))


def _parse_frame(data: bytes, at: int, name: str) -> PictureHeader:
    """Read length (2 bytes), precision (1), height (2), width (2) and number of components (1)."""
    if at + 8 > len(data):
        raise _unusable(name, "the JPEG ends within its header")
    height = int.from_bytes(data[at + 3 : at + 5], "big")
    width = int.from_bytes(data[at + 5 : at + 7], "big")
    if not (height and width):
        raise _unusable(name, f"the JPEG is {width} x {height} pixels")
    return PictureHeader(format="JPEG", width=width, height=height, channels=data[at + 7])


def _parse_png(data: bytes, name: str) -> PictureHeader:
    header = data[len(PNG_START) : len(PNG_START) + 18]
    if len(header) < 18 or header[4:8] != b"IHDR":
        raise _unusable(name, "the PNG ends within its header")
    width, height = int.from_bytes(header[8:12], "big"), int.from_bytes(header[12:16], "big")
    channels = _PNG_CHANNELS.get(header[17])
    if not (height and width) or channels is None:
        raise _unusable(name, f"the PNG is {width} x {height} pixels of colour type {header[17]}")
    return PictureHeader(format="PNG", width=width, height=height, channels=channels)


def _unusable(name: str, why: str) -> TrainingError:
    return TrainingError(
        f"`{name}` cannot be packed: {why}", hint="get the file again, or take it out"
    )
