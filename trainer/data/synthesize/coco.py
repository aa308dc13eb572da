"""Makes a small data set in COCO's format that can be learnt: discs, boxes and triangles.

    python -m trainer.data.synthesize.coco --to data/shapes --train 200 --val 50

Equal arguments give equal files. As in COCO there are pictures of both orientations, pictures
without any object, objects behind others, crowds as run-length codes, and gaps in the category ids.
"""

from __future__ import annotations

import argparse
import colorsys
import io
import json
import math
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.common.errors import TrainingError
from trainer.data.pictures.coco import SplitName
from trainer.data.synthesize.folders import default_folder, whole_folder

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

# Another number for other pictures of the same arguments.
VERSION = 1
CATEGORIES = {2: "disc", 3: "box", 7: "triangle"}
# Hues apart from each other; a shape of any colour would take far longer to learn.
HUES = {2: 0.02, 3: 0.33, 7: 0.62}
LONG_SIDE, SHORT_SIDE = 256, 192
EMPTY_EVERY, CROWD_EVERY = 12, 10
MOST_SHAPES = 4
JPEG_QUALITY = 90
_VAL = "annotations/instances_val2017.json"

Point = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A polygon that is drawn, and its category."""

    category: int
    corners: list[Point]

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, top, width, height."""
        across, down = [x for x, _ in self.corners], [y for _, y in self.corners]
        return min(across), min(down), max(across) - min(across), max(down) - min(down)

    @property
    def area(self) -> float:
        """Square pixels, by the shoelace formula."""
        pairs = zip(self.corners, self.corners[1:] + self.corners[:1], strict=True)
        return abs(sum(x * v - u * y for (x, y), (u, v) in pairs)) / 2


def make_default_coco(*, num_train: int, num_val: int, seed: int) -> Path:
    """Make the set in a folder of this machine and user, unless it is there; gives the folder."""
    folder = default_folder(kind="coco", version=VERSION, train=num_train, val=num_val, seed=seed)
    if not folder.exists():
        make_coco(folder, num_train=num_train, num_val=num_val, seed=seed)
    return folder


def make_coco(folder: Path, *, num_train: int, num_val: int, seed: int) -> None:
    """Write the set, whole or not at all; any number of processes may call this at once.

    Raises TrainingError where there is something in the folder, or no file can be written.
    """

    def is_there(made: Path) -> bool:
        there = folder / _VAL
        if not there.is_file() or there.read_bytes() != (made / _VAL).read_bytes():
            message = f"`{folder}` holds something else than this made set of pictures"
            raise TrainingError(message, hint="an empty or a new folder")
        return True

    with whole_folder(folder, is_there, what="pictures") as partial:
        _write_split(partial, "train2017", num_train, seed=seed)
        _write_split(partial, "val2017", num_val, seed=seed)


def _write_split(folder: Path, split: SplitName, num_pictures: int, *, seed: int) -> None:
    (folder / split).mkdir()
    (folder / "annotations").mkdir(exist_ok=True)
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number in range(num_pictures):
        rng = random.Random(f"{seed}/{split}/{number}")
        # Ids have gaps, and the order of files is not that of ids.
        image_id = 1000 + (number * 7919) % 10007
        size = (LONG_SIDE, SHORT_SIDE) if rng.random() < 0.7 else (SHORT_SIDE, LONG_SIDE)
        num_shapes = 0 if number % EMPTY_EVERY == EMPTY_EVERY - 1 else rng.randint(1, MOST_SHAPES)
        shapes = _place(rng, size, num_shapes)
        has_crowd = num_shapes > 0 and number % CROWD_EVERY == CROWD_EVERY - 1
        crowd = _crowd_box(rng, size) if has_crowd else None
        name = f"{image_id:012}.jpg"
        (folder / split / name).write_bytes(_encode(_draw(rng, size, shapes, crowd)))
        images.append({"id": image_id, "file_name": name, "width": size[0], "height": size[1]})
        entries = [_annotation(shape) for shape in shapes]
        if crowd is not None:
            entries.append(_crowd_annotation(crowd, size))
        for entry in entries:
            annotations.append({"id": len(annotations) + 1, "image_id": image_id, **entry})
    categories = [{"id": key, "name": name} for key, name in CATEGORIES.items()]
    content = {"images": images, "annotations": annotations, "categories": categories}
    path = folder / "annotations" / f"instances_{split}.json"
    path.write_text(json.dumps(content) + "\n", encoding="utf-8")


def _place(rng: random.Random, size: tuple[int, int], num_shapes: int) -> list[Shape]:
    """Place shapes wholly in the picture; a few corners lie behind the next one."""
    shapes: list[Shape] = []
    for _ in range(50):
        if len(shapes) == num_shapes:
            break
        radius = rng.uniform(18, 52)
        middle = rng.uniform(radius, size[0] - radius), rng.uniform(radius, size[1] - radius)
        made = _shape(rng.choice(list(CATEGORIES)), middle, radius, rng.uniform(0, math.tau))
        if all(_overlap(made, other) < 0.1 for other in shapes):
            shapes.append(made)
    return shapes


def _shape(category: int, middle: Point, radius: float, turn: float) -> Shape:
    num_corners = {"disc": 32, "box": 4, "triangle": 3}[CATEGORIES[category]]
    angles = [turn + math.tau * number / num_corners for number in range(num_corners)]
    corners = [
        (
            round(middle[0] + radius * math.cos(angle), 2),
            round(middle[1] + radius * math.sin(angle), 2),
        )
        for angle in angles
    ]
    return Shape(category=category, corners=corners)


def _overlap(one: Shape, other: Shape) -> float:
    """Give the common part of two shapes' boxes as a share of the smaller box."""
    sides = [
        min(one.box[axis] + one.box[axis + 2], other.box[axis] + other.box[axis + 2])
        - max(one.box[axis], other.box[axis])
        for axis in (0, 1)
    ]
    common = max(0.0, sides[0]) * max(0.0, sides[1])
    return common / min(one.box[2] * one.box[3], other.box[2] * other.box[3])


def _crowd_box(rng: random.Random, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """Choose a strip at the lower edge, in whole pixels: left, top, width, height."""
    width, height = rng.randint(80, 140), rng.randint(20, 30)
    return rng.randint(0, size[0] - width), size[1] - height, width, height


def _draw(
    rng: random.Random,
    size: tuple[int, int],
    shapes: Sequence[Shape],
    crowd: tuple[int, int, int, int] | None,
) -> Image:
    """Draw the shapes over blurred clouds, the first at the bottom, and noise over all."""
    from PIL import Image, ImageDraw

    clouds = Image.frombytes("RGB", (6, 6), bytes(rng.randrange(70, 190) for _ in range(108)))
    picture = clouds.resize(size, Image.Resampling.BICUBIC)
    draw = ImageDraw.Draw(picture)
    if crowd is not None:
        _draw_crowd(draw, rng, crowd)
    for shape in shapes:
        draw.polygon(shape.corners, fill=_colour(rng, shape.category), outline=(25, 25, 25))
    coarse = size[0] // 2, size[1] // 2
    noise = Image.frombytes("RGB", coarse, rng.randbytes(3 * coarse[0] * coarse[1]))
    return Image.blend(picture, noise.resize(size), 0.1)


def _draw_crowd(draw: ImageDraw, rng: random.Random, box: tuple[int, int, int, int]) -> None:
    left, top, width, height = box
    for _ in range(60):
        x, y = left + rng.uniform(3, width - 3), top + rng.uniform(3, height - 3)
        draw.ellipse((x - 3, y - 3, x + 3, y + 3), fill=_colour(rng, 2))


def _colour(rng: random.Random, category: int) -> tuple[int, int, int]:
    hue = (HUES[category] + rng.uniform(-0.05, 0.05)) % 1.0
    shares = colorsys.hsv_to_rgb(hue, rng.uniform(0.65, 0.95), rng.uniform(0.65, 1.0))
    return round(shares[0] * 255), round(shares[1] * 255), round(shares[2] * 255)


def _encode(picture: Image) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=JPEG_QUALITY)
    return buffer.getvalue()


def _annotation(shape: Shape) -> dict[str, Any]:
    return {
        "category_id": shape.category,
        "iscrowd": 0,
        "area": round(shape.area, 2),
        "bbox": [round(number, 2) for number in shape.box],
        "segmentation": [[number for corner in shape.corners for number in corner]],
    }


def _crowd_annotation(box: tuple[int, int, int, int], size: tuple[int, int]) -> dict[str, Any]:
    """Describe a crowd of discs as runs of 0 and 1 down each column from the left."""
    left, top, width, height = box
    below = size[1] - top - height
    counts = [left * size[1] + top]
    for _ in range(width - 1):
        counts += [height, below + top]
    counts += [height, below + (size[0] - left - width) * size[1]]
    return {
        "category_id": 2,
        "iscrowd": 1,
        "area": width * height,
        "bbox": list(box),
        "segmentation": {"size": [size[1], size[0]], "counts": counts},
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; gives its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m trainer.data.synthesize.coco", allow_abbrev=False
    )
    parser.add_argument("--to", type=Path, required=True, metavar="DIR")
    parser.add_argument("--train", type=int, default=200, metavar="N", help="training pictures")
    parser.add_argument("--val", type=int, default=50, metavar="N", help="validation pictures")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    given = parser.parse_args(argv)
    if not (0 < given.train <= 10007 and 0 < given.val <= 10007):
        parser.error("1 to 10,007 pictures for training, and as many for validation")
    try:
        make_coco(given.to, num_train=given.train, num_val=given.val, seed=given.seed)
    except TrainingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{given.train} training and {given.val} validation pictures in {given.to}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
