"""Makes small data sets of JPEGs that can be learnt, for a first run without any download.

    python -m trainer.data.synthesize.stripes --to data/pictures --classes 10 --train 800 --val 200

Equal arguments give equal pictures. A class is a colour with stripes of a direction; the two
classes ants and bees are drawn as insects.
"""

from __future__ import annotations

import argparse
import colorsys
import io
import json
import math
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainer.common.errors import TrainingError
from trainer.data.synthesize.folders import VERSION, whole_folder

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

ABOUT = "about.json"
INSECTS = ("ants", "bees")
JPEG_QUALITY = 87


@dataclass(frozen=True, kw_only=True)
class Scene:
    """The class, the number of classes and the size of one picture."""

    rng: random.Random
    label: int
    num_classes: int
    width: int
    height: int


Draw = Callable[["ImageDraw", Scene], None]


def make_pictures(
    folder: Path,
    *,
    num_classes: int,
    num_train: int,
    num_val: int,
    size: int,
    seed: int,
    names: Sequence[str] | None = None,
) -> None:
    """Write `folder/{train,val}/<class>/*.jpg` of about `size` pixels; whole or not at all.

    A set of the same arguments that is there already stays. Any number of processes may call this
    at once. Raises TrainingError where something else is there, or no file can be written.
    """
    names = tuple(names or (f"class-{number:04}" for number in range(num_classes)))
    assert len(names) == num_classes
    about = {
        "version": VERSION,
        "classes": list(names),
        "train": num_train,
        "val": num_val,
        "size": size,
        "seed": seed,
    }
    if _is_there(folder, about):
        return
    with whole_folder(folder, lambda _: _is_there(folder, about), what="pictures") as partial:
        for split, num_pictures in (("train", num_train), ("val", num_val)):
            _write_split(partial / split, names, num_pictures, size=size, seed=seed)
        (partial / ABOUT).write_text(json.dumps(about) + "\n", encoding="utf-8")


def _is_there(folder: Path, about: dict[str, object]) -> bool:
    try:
        found = json.loads((folder / ABOUT).read_bytes())
    except (OSError, ValueError):
        found = None
    if found is None and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        message = f"`{folder}` holds something else than a made set of pictures"
        raise TrainingError(message, hint="an empty or a new folder")
    if found is not None and found != about:
        message = f"`{folder}` holds a set of other pictures: {json.dumps(found)}"
        raise TrainingError(message, hint="choose another folder, or the same arguments")
    return found is not None


def _write_split(
    folder: Path, names: Sequence[str], num_pictures: int, *, size: int, seed: int
) -> None:
    for name in names:
        (folder / name).mkdir(parents=True)
    for number in range(num_pictures):
        label = number % len(names)
        rng = random.Random(f"{seed}/{folder.name}/{number}")
        draw = INSECT_DRAWERS.get(names[label], draw_stripes)
        data = _encode(draw_picture(draw, rng, label=label, num_classes=len(names), size=size))
        (folder / names[label] / f"{number:06}.jpg").write_bytes(data)


def draw_picture(
    draw: Draw, rng: random.Random, *, label: int, num_classes: int, size: int
) -> Image:
    """Draw one picture with noise over it; its longer side is `size`, the other 3/4 of it or more."""
    from PIL import Image, ImageDraw

    short = round(size * rng.uniform(0.75, 1.0))
    width, height = (size, short) if rng.random() < 0.5 else (short, size)
    picture = Image.new("RGB", (width, height))
    scene = Scene(rng=rng, label=label, num_classes=num_classes, width=width, height=height)
    draw(ImageDraw.Draw(picture), scene)
    coarse = max(1, width // 3), max(1, height // 3)
    noise = Image.frombytes("RGB", coarse, rng.randbytes(3 * coarse[0] * coarse[1]))
    return Image.blend(picture, noise.resize((width, height)), 0.18)


def _encode(picture: Image) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=JPEG_QUALITY)
    return buffer.getvalue()


def draw_stripes(draw: ImageDraw, scene: Scene) -> None:
    """Draw stripes in the class's colour and direction over grey."""
    rng, width, height = scene.rng, scene.width, scene.height
    share = scene.label / scene.num_classes
    grey = rng.randrange(60, 190)
    draw.rectangle((0, 0, width, height), fill=(grey, grey, grey))
    colour = _colour(
        share + rng.uniform(-0.2, 0.2) / scene.num_classes, 0.85, rng.uniform(0.6, 1.0)
    )
    angle = math.pi * share + rng.uniform(-0.1, 0.1)
    across = math.cos(angle), math.sin(angle)
    reach = math.hypot(width, height)
    period = reach / rng.uniform(5, 9)
    start = rng.uniform(-reach, -reach + period)
    middle = width / 2, height / 2
    for number in range(math.ceil(2 * reach / period)):
        offset = start + number * period
        foot = middle[0] + across[0] * offset, middle[1] + across[1] * offset
        ends = [
            (foot[0] - side * across[1] * reach, foot[1] + side * across[0] * reach)
            for side in (-1, 1)
        ]
        draw.line(ends, fill=colour, width=max(1, round(period * 0.55)))


def draw_ant(draw: ImageDraw, scene: Scene) -> None:
    """Draw a dark body of three parts with six legs on sand or soil."""
    rng = scene.rng
    _ground(draw, scene, hue=(0.06, 0.12))
    place = _Insect(scene)
    dark = _colour(rng.uniform(0.0, 0.06), 0.6, rng.uniform(0.08, 0.3))
    line = max(1, round(place.length * 0.035))
    for side in (-1, 1):
        for along, reach in ((0.18, 0.28), (0.0, 0.03), (-0.12, -0.3)):
            draw.line(
                [
                    place.at(along, 0),
                    place.at(reach, side * 0.2),
                    place.at(reach * 1.5, side * 0.42),
                ],
                fill=dark,
                width=line,
            )
        draw.line([place.at(0.42, 0), place.at(0.66, side * 0.22)], fill=dark, width=line)
    for along, radius in ((0.36, 0.12), (0.08, 0.1), (-0.32, 0.21)):
        place.disc(draw, along, 0, radius, fill=dark)


def draw_bee(draw: ImageDraw, scene: Scene) -> None:
    """Draw a thick yellow body with black bands and two wings on leaves."""
    rng = scene.rng
    _ground(draw, scene, hue=(0.22, 0.4))
    place = _Insect(scene)
    black = _colour(0.1, 0.4, rng.uniform(0.03, 0.15))
    yellow = _colour(rng.uniform(0.11, 0.14), 0.9, rng.uniform(0.8, 1.0))
    for side in (-1, 1):
        place.disc(draw, 0.08, side * 0.36, 0.2, fill=(214, 222, 232))
    for number in range(9):
        along = 0.24 - number * 0.09
        radius = 0.23 * math.sqrt(1 - (number / 8 - 0.42) ** 2)
        place.disc(draw, along, 0, radius, fill=black if number % 2 else yellow)
    place.disc(draw, 0.4, 0, 0.14, fill=black)


INSECT_DRAWERS: dict[str, Draw] = {"ants": draw_ant, "bees": draw_bee}


class _Insect:
    """A body's own coordinates: along it and across it, in its lengths from its middle."""

    def __init__(self, scene: Scene) -> None:
        rng, width, height = scene.rng, scene.width, scene.height
        self.length = min(width, height) * rng.uniform(0.55, 0.8)
        self._middle = width * rng.uniform(0.4, 0.6), height * rng.uniform(0.4, 0.6)
        angle = rng.uniform(0, 2 * math.pi)
        self._along = math.cos(angle), math.sin(angle)

    def at(self, along: float, across: float) -> tuple[float, float]:
        """Give the point in pixels."""
        return (
            self._middle[0] + self.length * (along * self._along[0] - across * self._along[1]),
            self._middle[1] + self.length * (along * self._along[1] + across * self._along[0]),
        )

    def disc(
        self,
        draw: ImageDraw,
        along: float,
        across: float,
        radius: float,
        *,
        fill: tuple[int, int, int],
    ) -> None:
        """Draw a disc around a point."""
        x, y = self.at(along, across)
        reach = radius * self.length
        draw.ellipse((x - reach, y - reach, x + reach, y + reach), fill=fill)


def _ground(draw: ImageDraw, scene: Scene, *, hue: tuple[float, float]) -> None:
    rng, width, height = scene.rng, scene.width, scene.height
    colour = _colour(rng.uniform(*hue), rng.uniform(0.25, 0.5), rng.uniform(0.5, 0.8))
    draw.rectangle((0, 0, width, height), fill=colour)
    for _ in range(12):
        x, y = rng.uniform(0, width), rng.uniform(0, height)
        reach = max(width, height) * rng.uniform(0.05, 0.2)
        patch = _colour(rng.uniform(*hue), rng.uniform(0.25, 0.5), rng.uniform(0.4, 0.8))
        draw.ellipse((x - reach, y - reach, x + reach, y + reach), fill=patch)


def _colour(hue: float, saturation: float, value: float) -> tuple[int, int, int]:
    red, green, blue = colorsys.hsv_to_rgb(hue % 1.0, saturation, value)
    return round(red * 255), round(green * 255), round(blue * 255)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; gives its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m trainer.data.synthesize.stripes", allow_abbrev=False
    )
    parser.add_argument("--to", type=Path, required=True, metavar="DIR")
    parser.add_argument("--classes", type=int, default=10, metavar="N")
    parser.add_argument("--train", type=int, default=800, metavar="N", help="training pictures")
    parser.add_argument("--val", type=int, default=200, metavar="N", help="validation pictures")
    parser.add_argument("--size", type=int, default=96, metavar="N", help="pixels of the long side")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--insects", action="store_true", help="two classes, ants and bees")
    given = parser.parse_args(argv)
    num_classes = len(INSECTS) if given.insects else given.classes
    if min(num_classes, given.size) < 1 or min(given.train, given.val) < num_classes:
        parser.error("each class needs a picture for training and one for validation")
    try:
        make_pictures(
            given.to,
            num_classes=num_classes,
            num_train=given.train,
            num_val=given.val,
            size=given.size,
            seed=given.seed,
            names=INSECTS if given.insects else None,
        )
    except TrainingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{given.train} training and {given.val} validation pictures in {given.to}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
