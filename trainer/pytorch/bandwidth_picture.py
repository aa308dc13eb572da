"""Draws bandwidth over the size of a message, as a PNG."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

from trainer.common.bandwidth import size_text

WIDTH, HEIGHT, MARGIN, FONT_SIZE = 960, 540, 80, 17
INK, GRID, LINE = (30, 30, 30), (225, 225, 225), (22, 90, 180)


def draw_bandwidths(points: Sequence[tuple[int, float]]) -> bytes:
    """Draw points of bytes and GB/s, bytes on a scale of powers; gives the PNG."""
    font = ImageFont.load_default(FONT_SIZE)
    picture = Image.new("RGB", (WIDTH, HEIGHT), "white")
    draw = ImageDraw.Draw(picture)
    first, last = (math.log2(points[end][0]) for end in (0, -1))
    top = max(figure for _, figure in points) or 1.0

    def place(num_bytes: float, figure: float) -> tuple[float, float]:
        along = (math.log2(num_bytes) - first) / ((last - first) or 1.0)
        up = figure / top
        return MARGIN + along * (WIDTH - 2 * MARGIN), HEIGHT - MARGIN - up * (HEIGHT - 2 * MARGIN)

    draw.text((MARGIN, MARGIN / 3), "all-reduce: bus bandwidth, GB/s", font=font, fill=INK)
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        left, height = place(points[0][0], share * top)
        draw.line([(left, height), (WIDTH - MARGIN, height)], fill=GRID)
        draw.text((left - 10, height), f"{share * top:.3g}", font=font, fill=INK, anchor="rm")
    for num_bytes, _ in points[:: max(1, len(points) // 8)]:
        left, bottom = place(num_bytes, 0.0)
        draw.text((left, bottom + 10), size_text(num_bytes), font=font, fill=INK, anchor="mt")
    corners = [place(*point) for point in points]
    draw.line(corners, fill=LINE, width=3)
    for left, height in corners:
        draw.ellipse([left - 4, height - 4, left + 4, height + 4], fill=LINE)
    encoded = io.BytesIO()
    picture.save(encoded, "PNG")
    return encoded.getvalue()
