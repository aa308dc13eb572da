"""Encodes tf.train.Example records as tf.data reads them, without TensorFlow.

A record is its length, the length's checksum, the content, the content's checksum; the content is
a tf.train.Example in protocol buffers' wire format. The picture's bytes come last in it, so that
everything else is known before they are, and the picture can be read by its place in the file.
https://www.tensorflow.org/tutorials/load_data/tfrecord
https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from trainer.common.errors import TrainingError

# Sizes, labels and class names come again and again.
_cached = lru_cache(maxsize=4096)

_MASK_DELTA = 0xA282EAD8
_LENGTH_BYTES = 12  # the length and its checksum


@_cached
def bytes_feature(*values: bytes) -> bytes:
    """Encode a Feature that is a BytesList."""
    return _field(1, b"".join(_field(1, value) for value in values))


def float_feature(values: Sequence[float]) -> bytes:
    """Encode a Feature that is a FloatList."""
    return _field(2, _field(1, struct.pack(f"<{len(values)}f", *values)))


@_cached
def int_feature(*values: int) -> bytes:
    """Encode a Feature that is an Int64List."""
    return _field(3, _field(1, b"".join(_varint(value & (2**64 - 1)) for value in values)))


def record_parts(
    features: Mapping[str, bytes], picture_key: str, picture: bytes
) -> tuple[list[bytes], int]:
    """Give the bytes to write for a record of encoded features and a picture.

    Also gives where the picture's first byte is, counted from the record's own.
    """
    checksum, extend = _crc32c()
    prefix = _example_before(features, picture_key, len(picture))
    length = struct.pack("<Q", len(prefix) + len(picture))
    before = b"".join((length, _masked(checksum(length)), prefix))
    after = _masked(extend(checksum(prefix), picture))
    return [before, picture, after], _LENGTH_BYTES + len(prefix)


def _example_before(features: Mapping[str, bytes], picture_key: str, size: int) -> bytes:
    """Encode an Example up to a BytesList's one value, which ends it."""
    # From the inside out: each message's header holds the length of what follows.
    inner = _field_head(1, size)  # BytesList.value
    inner = _field_head(1, len(inner) + size) + inner  # Feature.bytes_list
    inner = _field_head(2, len(inner) + size) + inner  # the map entry's value
    inner = _field(1, picture_key.encode()) + inner  # the map entry's key
    entries = b"".join(_entry(key, feature) for key, feature in sorted(features.items()))
    inner = entries + _field_head(1, len(inner) + size) + inner  # Features.feature
    return _field_head(1, len(inner) + size) + inner  # Example.features


@_cached
def _entry(key: str, feature: bytes) -> bytes:
    return _field(1, _field(1, key.encode()) + _field(2, feature))


def _field(number: int, content: bytes) -> bytes:
    return _field_head(number, len(content)) + content


def _field_head(number: int, length: int) -> bytes:
    """Encode tag and length of a field of the wire type LEN, which is 2."""
    return bytes((number << 3 | 2,)) + _varint(length)


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    digits = bytearray()
    while value >= 0x80:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)


def _masked(checksum: int) -> bytes:
    """Rotate and shift a checksum as records hold it: content may hold checksums itself."""
    turned = checksum >> 15 | checksum << 17 & 0xFFFFFFFF
    return struct.pack("<I", turned + _MASK_DELTA & 0xFFFFFFFF)


def _crc32c() -> tuple[Callable[[bytes], int], Callable[[int, bytes], int]]:
    try:
        import google_crc32c
    except ImportError:
        message = "google-crc32c is not installed here, and TFRecord's checksums need it"
        raise TrainingError(message, hint="uv sync --group data, or --format tar") from None
    return google_crc32c.value, google_crc32c.extend
