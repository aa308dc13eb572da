"""Pillow gives a picture's pixels in three colours, or says why it cannot."""

import io

import pytest
from PIL import Image

from trainer.data.pictures.decoding import decode_rgb
from trainer.data.pictures.header import CorruptPicture, too_deep


@pytest.mark.parametrize(
    ("mode", "kind", "pixel"),
    [("I;16", "PNG", 30_000), ("I;16", "TIFF", 30_000), ("I", "TIFF", 70_000), ("F", "TIFF", 0.5)],
)
def test_what_has_more_than_8_bits_is_refused_in_the_words_of_pytorchs_loader(mode, kind, pixel):
    buffer = io.BytesIO()
    Image.new(mode, (20, 10), pixel).save(buffer, kind)
    with pytest.raises(CorruptPicture) as error:
        decode_rgb(buffer.getvalue(), "x", formats=None)
    assert error.value.args == too_deep("x").args
    assert str(error.value) == "`x` has more than 8 bits a colour (hint: convert it to 8 bits)"


@pytest.mark.parametrize(
    ("mode", "pixel", "rgb"),
    [
        ("L", 100, (100, 100, 100)),
        ("1", 1, (255, 255, 255)),
        ("LA", (100, 7), (100, 100, 100)),
        ("RGBA", (1, 2, 3, 4), (1, 2, 3)),
    ],
)
def test_what_has_8_bits_or_fewer_becomes_three_colours(mode, pixel, rgb):
    buffer = io.BytesIO()
    Image.new(mode, (20, 10), pixel).save(buffer, "PNG")
    assert decode_rgb(buffer.getvalue(), "x").getpixel((5, 5)) == rgb


def test_a_palette_of_clear_colours_is_read_without_a_warning():
    buffer = io.BytesIO()
    picture = Image.new("RGB", (20, 10), (200, 100, 50)).quantize(4)
    picture.save(buffer, "PNG", transparency=b"\x7f")
    assert decode_rgb(buffer.getvalue(), "x").getpixel((5, 5)) == (200, 100, 50)
