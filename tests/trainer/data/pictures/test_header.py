"""What a picture is, by its header: as Pillow says, and refused where it is cut off."""

from __future__ import annotations

import contextlib
import io
import struct

import pytest
from PIL import Image

from tests import seeds
from trainer.common.errors import TrainingError
from trainer.data.pictures.header import PictureHeader, parse_header

WIDTH, HEIGHT = 37, 21


def draw(mode):
    pixels = seeds.dice(7).randbytes(WIDTH * HEIGHT * 4)
    return Image.frombytes("RGBA", (WIDTH, HEIGHT), pixels).convert(mode)


def encode(mode="RGB", kind="JPEG", **options):
    buffer = io.BytesIO()
    draw(mode).save(buffer, kind, **options)
    return buffer.getvalue()


def with_thumbnail():
    thumbnail = encode(quality=5)
    return encode(exif=b"Exif\0\0" + b"MM\0*\0\0\0\x08\0\0" + thumbnail, progressive=True)


JPEG = encode()
HEADER = PictureHeader(format="JPEG", width=WIDTH, height=HEIGHT, channels=3)


@pytest.mark.parametrize(
    ("data", "channels"),
    [
        (encode(), 3),
        (encode("L"), 1),
        (encode("CMYK"), 4),  # with Adobe's segment
        (encode(progressive=True), 3),
        (encode(optimize=True, subsampling=0, quality=100), 3),
        (encode(restart_marker_blocks=1), 3),
        (encode(comment=b"\xff\xc0\0\x11\x08\0\1\0\1\3" * 9), 3),
        (encode(icc_profile=bytes(70_000)), 3),
        (with_thumbnail(), 3),
    ],
)
def test_every_kind_of_jpeg_is_measured(data, channels):
    header = parse_header(data, "x.jpg")
    assert header == PictureHeader(format="JPEG", width=WIDTH, height=HEIGHT, channels=channels)
    assert header.suffix == "jpg"


@pytest.mark.parametrize(
    ("mode", "channels"), [("RGB", 3), ("L", 1), ("P", 1), ("LA", 2), ("RGBA", 4)]
)
def test_a_png_is_one_whatever_its_name_says(mode, channels):
    header = parse_header(encode(mode, "PNG"), "n02105855_2933.JPEG")
    assert header == PictureHeader(format="PNG", width=WIDTH, height=HEIGHT, channels=channels)
    assert header.suffix == "png"


def test_bytes_between_segments_fill_bytes_and_trailing_bytes_are_passed_over():
    start, rest = JPEG[:2], JPEG[2:]
    assert parse_header(start + b"\0\x12\x34" + rest, "x") == HEADER
    assert parse_header(start + b"\xff\xff\xff" + rest, "x") == HEADER
    assert parse_header(start + b"\xff\0\xff\xd0\xff\x01" + rest, "x") == HEADER
    assert parse_header(JPEG + b"trailing", "x") == HEADER


def test_a_segment_of_an_impossible_length_does_not_go_backwards():
    assert parse_header(JPEG[:2] + b"\xff\xe1\0\0" + JPEG[2:], "x") == HEADER


@pytest.mark.parametrize("data", [with_thumbnail(), encode("RGB", "PNG")], ids=["jpeg", "png"])
def test_a_picture_that_is_cut_off_anywhere_is_refused_by_name(data):
    for length in range(len(data) - 1):
        with pytest.raises(TrainingError, match=r"`a/b\.jpg` cannot be packed: "):
            parse_header(data[:length], "a/b.jpg")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it is empty"),
        (b"GIF89a", "neither a JPEG nor a PNG"),
        (b"<html>not found</html>", "neither a JPEG nor a PNG"),
        (b"\xff\xd8\xff\xd9", "has no frame header"),
        (b"\xff\xd8" + bytes(99), "ends within its header"),
        (b"\xff\xd8\xff\xda\0\2", "has no frame header"),
        (b"\xff\xd8\xff\xc0\0\x11\x08\0\0\0\x05\3\xff\xd9", "is 5 x 0 pixels"),
        (
            b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">IIBBBBB", 5, 5, 8, 9, 0, 0, 0),
            "of colour type 9",
        ),
    ],
)
def test_what_is_no_picture_is_refused(data, why):
    with pytest.raises(TrainingError, match=why):
        parse_header(data, "x")


def test_random_changes_never_break_the_reader():
    rng = seeds.dice(3)
    for _ in range(2000):
        data = bytearray(JPEG[:400])
        for _ in range(rng.randint(1, 8)):
            data[rng.randrange(2, len(data))] = rng.choice(
                (0, 0xFF, 0xC0, 0xDA, rng.randrange(256))
            )
        with contextlib.suppress(TrainingError):
            assert parse_header(bytes(data), "x").format == "JPEG"
