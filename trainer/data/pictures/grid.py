"""Draws pictures and a network's predictions as one PNG."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainer.common.messages import warn
from trainer.common.whole_file import write_whole
from trainer.data.pictures.decoding import decode_rgb
from trainer.data.pictures.header import CorruptPicture

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont, ImageFont

CELL = 224
GAP = 12
TEXT_HEIGHT = 46
FONT_SIZE = 17
NUM_COLUMNS = 4
INK = (30, 30, 30)
INKS = {True: (22, 120, 60), False: (190, 30, 30), None: INK}


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """An encoded picture, the class it was taken for and how surely (0 to 1).

    `about` is the line below; `is_right` is None where nobody knows the picture's own class.
    """

    picture: bytes
    predicted: str
    share: float
    about: str
    is_right: bool | None = None


def write_grid(path: Path, predictions: Sequence[Prediction]) -> None:
    """Write the pictures in rows of four, right ones titled green, wrong ones red; whole or not.

    A picture that Pillow cannot read is left out, with a warning. Raises TrainingError where the disk
    refuses.
    """
    from PIL import Image, ImageDraw, ImageFont, ImageOps

    font = ImageFont.load_default(FONT_SIZE)
    num_columns = min(NUM_COLUMNS, len(predictions))
    num_rows = -(-len(predictions) // NUM_COLUMNS)
    size = num_columns * (CELL + GAP) + GAP, num_rows * (CELL + TEXT_HEIGHT + GAP) + GAP
    grid = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(grid)
    for number, each in enumerate(predictions):
        row, column = divmod(number, NUM_COLUMNS)
        left, top = GAP + column * (CELL + GAP), GAP + row * (CELL + TEXT_HEIGHT + GAP)
        ink = INKS[each.is_right]
        lines = f"predicted {each.predicted} {each.share:.0%}", each.about
        for line, text in enumerate(lines):
            place = left, top + line * TEXT_HEIGHT // 2
            draw.text(place, _fit(draw, text, CELL, font), font=font, fill=INK if line else ink)
        try:
            picture = decode_rgb(each.picture, f"the picture of {each.about}")
        except CorruptPicture as error:
            warn(f"{error.message}; it is not drawn")
            continue
        cell = ImageOps.pad(picture, (CELL, CELL), color="white", centering=(0, 0))
        grid.paste(cell, (left, top + TEXT_HEIGHT))
    encoded = io.BytesIO()
    grid.save(encoded, "PNG")
    write_whole(path, encoded.getvalue())


def _fit(draw: ImageDraw, text: str, width: int, font: FreeTypeFont | ImageFont) -> str:
    """Shorten the text until it is no wider than its picture."""
    while len(text) > 1 and draw.textlength(text, font=font) > width:
        text = text.rstrip("…")[:-1] + "…"
    return text
