"""Draws what Mask R-CNN finds in a picture: masks, boxes, names and scores, as a PNG."""

from __future__ import annotations

import colorsys
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

from trainer.common.whole_file import write_whole
from trainer.data.pictures.predicted import Files, Row, whole_pictures
from trainer.pytorch.maskrcnn_evaluation import Found, find_objects
from trainer.pytorch.maskrcnn_model import build_network, load_trained, read_weights

# What is less sure than this is not drawn.
LEAST_SCORE = 0.5
# A small picture is drawn larger, or its labels would cover it.
LEAST_SIDE = 720
MASK_OPACITY = 0.45
# Steps of the golden ratio around the circle of hues: neighbours are far from each other.
HUE_STEP = 0.381966

CORNERS = ("left", "top", "right", "bottom")

Colour = tuple[int, int, int]
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


def predict(weights_path: Path, files: Files, folder: Path, device: torch.device) -> Iterator[Row]:
    """Yield a row for each object of each picture; draw them into the folder as `<name>.png`.

    Raises TrainingError where the weights cannot be read, and for corrupt pictures as `files` says.
    """
    weights = read_weights(weights_path)
    network = build_network(weights.design, is_pretrained=True)
    load_trained(network, weights.design, weights)
    network.to(device).eval()
    stems = Counter(path.with_suffix("") for path in files.paths)
    for index, picture in whole_pictures(files, formats=None):
        path = files.paths[index]
        image = torch.from_numpy(np.array(picture).transpose(2, 0, 1).copy())
        found = keep_sure(find_objects(network, image, device))
        names = [weights.design.classes[label - 1] for label in found.labels.tolist()]
        shown = files.shown(index)
        # Where a.jpg lies beside a.png, each drawing keeps its suffix.
        is_one = stems[path.with_suffix("")] == 1
        target = Path(shown).with_suffix(".png") if is_one else f"{shown}.png"
        _save(draw_found(picture, found, names), folder / target)
        for name, score, box in zip(
            names, found.scores.tolist(), found.boxes.tolist(), strict=True
        ):
            corners = dict(zip(CORNERS, (f"{number:.1f}" for number in box), strict=True))
            yield {
                "picture": shown,
                "class": name,
                "score": f"{score:.4f}",
                **corners,
            }


def _save(drawn: Image.Image, path: Path) -> None:
    encoded = io.BytesIO()
    drawn.save(encoded, "PNG")
    write_whole(path, encoded.getvalue())


def keep_sure(found: Found) -> Found:
    """Drop objects whose score is too low."""
    sure = found.scores >= LEAST_SCORE
    return Found(
        boxes=found.boxes[sure],
        labels=found.labels[sure],
        scores=found.scores[sure],
        masks=found.masks[sure],
    )


def draw_found(picture: Image.Image, found: Found, names: Sequence[str]) -> Image.Image:
    """Draw all that was found over the picture; each object has a colour of its own."""
    scale = max(1.0, LEAST_SIDE / max(picture.size))
    size = round(picture.width * scale), round(picture.height * scale)
    drawn = picture.resize(size, Image.Resampling.BICUBIC)
    line = max(2, round(max(size) / 400))
    font = ImageFont.load_default(max(14, round(max(size) / 52)))
    colours = [_colour(number) for number in range(len(names))]
    # The surest comes last and lies on top.
    order = range(len(names) - 1, -1, -1)
    for number in order:
        drawn = _draw_mask(drawn, found.masks[number].numpy(), colours[number], line)
    draw = ImageDraw.Draw(drawn)
    boxes = (found.boxes * scale).round().int().tolist()
    for number in order:
        draw.rectangle(boxes[number], outline=colours[number], width=line)
    for number in order:
        text = f"{names[number]} {found.scores[number].item():.0%}"
        _draw_label(draw, text, boxes[number], colour=colours[number], font=font)
    return drawn


def _draw_mask(picture: Image.Image, mask: np.ndarray, colour: Colour, line: int) -> Image.Image:
    """Tint the object and trace its outline."""
    cover = Image.fromarray(mask.astype(np.uint8) * 255).resize(
        picture.size, Image.Resampling.BICUBIC
    )
    tint = cover.point(lambda value: round(value * MASK_OPACITY))
    picture = Image.composite(Image.new("RGB", picture.size, colour), picture, tint)
    inside = np.array(cover) > 127
    edge = inside & ~_shrunk(inside, line)
    return Image.composite(
        Image.new("RGB", picture.size, colour),
        picture,
        Image.fromarray(edge.astype(np.uint8) * 255),
    )


def _shrunk(inside: np.ndarray, by: int) -> np.ndarray:
    """Shrink the mask by a rim of so many pixels."""
    for _ in range(by):
        padded = np.pad(inside, 1)
        inside = (
            inside & padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
        )
    return inside


def _draw_label(
    draw: ImageDraw.ImageDraw, text: str, box: Sequence[int], *, colour: Colour, font: Font
) -> None:
    """Write name and score on the box's upper edge, within the picture."""
    left, top, right, bottom = draw.textbbox((0, 0), text, font=font)
    pad = max(3, round((bottom - top) / 4))
    width, height = round(right - left) + 2 * pad, round(bottom - top) + 2 * pad
    x = max(0, min(box[0], draw.im.size[0] - width))
    y = box[1] - height if box[1] >= height else box[1]
    draw.rectangle((x, y, x + width, y + height), fill=colour)
    red, green, blue = colour
    is_light = 0.299 * red + 0.587 * green + 0.114 * blue > 140
    ink = (0, 0, 0) if is_light else (255, 255, 255)
    draw.text((x + pad - left, y + pad - top), text, fill=ink, font=font)


def _colour(number: int) -> Colour:
    shares = colorsys.hsv_to_rgb((0.08 + number * HUE_STEP) % 1.0, 0.85, 0.98)
    return round(shares[0] * 255), round(shares[1] * 255), round(shares[2] * 255)
