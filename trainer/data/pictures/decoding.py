"""Decodes pictures by Pillow, within a bound of pixels."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from trainer.data.pictures.header import not_whole, require_few_pixels, too_deep

if TYPE_CHECKING:
    from PIL.Image import Image

# What data sets are made of.
DECODED = ("JPEG", "PNG")


def decode_rgb(source: bytes | Path, name: str, formats: tuple[str, ...] | None = DECODED) -> Image:
    """Give an encoded picture's, or a file's, pixels in three colours; `formats` None are all.

    Raises TrainingError for what is no whole picture, or has too many pixels, or grey of over 8 bits.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        file = io.BytesIO(source) if isinstance(source, bytes) else source
        # Only its header is read before its size is known.
        with Image.open(file, formats=formats) as picture:
            require_few_pixels(*picture.size, lambda: name)
            # Pillow clips those values instead of scaling them: of 16 bits nearly all become white.
            if picture.mode.startswith(("I", "F")):
                raise too_deep(name)
            # How clear a palette's colours are: `convert` leaves it out, and warns.
            picture.info.pop("transparency", None)
            return picture.convert("RGB")
    except UnidentifiedImageError:  # Pillow names the object that it read
        raise not_whole(name, "Unsupported image file") from None
    except (
        OSError,
        ValueError,
        SyntaxError,
        Image.DecompressionBombError,
        Image.DecompressionBombWarning,
    ) as error:
        raise not_whole(name, str(error)) from None
