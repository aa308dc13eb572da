"""Makes a small set of drawn digits in MNIST's IDX format, for a first run without any download.

Equal arguments give equal pictures: strokes of ten digits, moved, stretched, slanted and noisy.
"""

from __future__ import annotations

import math
import random
from pathlib import Path

from trainer.data.pictures.idx import write_idx
from trainer.data.synthesize.folders import default_folder, whole_folder

SIDE = 28
Point = tuple[float, float]
# Each digit as lines between points, in a box of width 1 and height 2.
TOP, MIDDLE, BOTTOM = ((0.0, 0.0), (1.0, 0.0)), ((0.0, 1.0), (1.0, 1.0)), ((0.0, 2.0), (1.0, 2.0))
UPPER_LEFT, UPPER_RIGHT = ((0.0, 0.0), (0.0, 1.0)), ((1.0, 0.0), (1.0, 1.0))
LOWER_LEFT, LOWER_RIGHT = ((0.0, 1.0), (0.0, 2.0)), ((1.0, 1.0), (1.0, 2.0))
STROKES: tuple[tuple[tuple[Point, Point], ...], ...] = (
    (TOP, BOTTOM, UPPER_LEFT, UPPER_RIGHT, LOWER_LEFT, LOWER_RIGHT),
    (((0.5, 0.0), (0.5, 2.0)), ((0.1, 0.4), (0.5, 0.0))),
    (TOP, UPPER_RIGHT, MIDDLE, LOWER_LEFT, BOTTOM),
    (TOP, UPPER_RIGHT, MIDDLE, LOWER_RIGHT, BOTTOM),
    (UPPER_LEFT, MIDDLE, UPPER_RIGHT, LOWER_RIGHT),
    (TOP, UPPER_LEFT, MIDDLE, LOWER_RIGHT, BOTTOM),
    (TOP, UPPER_LEFT, MIDDLE, LOWER_LEFT, LOWER_RIGHT, BOTTOM),
    (TOP, ((1.0, 0.0), (0.3, 2.0))),
    (TOP, MIDDLE, BOTTOM, UPPER_LEFT, UPPER_RIGHT, LOWER_LEFT, LOWER_RIGHT),
    (TOP, UPPER_LEFT, UPPER_RIGHT, MIDDLE, LOWER_RIGHT, BOTTOM),
)


def make_default_digits(*, num_train: int, num_test: int, seed: int) -> Path:
    """Give a folder of this machine and user that holds the set; made where it is missing.

    Any number of processes may call this at once. Raises TrainingError where no file can be written.
    """
    folder = default_folder(digits=[num_train, num_test], seed=seed)
    if folder.is_dir():
        return folder
    with whole_folder(folder, lambda _: folder.is_dir(), what="digits") as partial:
        for prefix, count in (("train", num_train), ("t10k", num_test)):
            _write_split(partial, prefix, count, seed)
    return folder


def _write_split(folder: Path, prefix: str, count: int, seed: int) -> None:
    pixels = b"".join(
        draw_digit(number % 10, f"{seed}/{prefix}/{number}") for number in range(count)
    )
    write_idx(folder / f"{prefix}-images-idx3-ubyte", (count, SIDE, SIDE), pixels)
    labels = bytes(number % 10 for number in range(count))
    write_idx(folder / f"{prefix}-labels-idx1-ubyte", (count,), labels)


def draw_digit(digit: int, key: str) -> bytes:
    """Give SIDE x SIDE bytes, light on dark; `key` decides place, size, slant, pen and noise."""
    rng = random.Random(key)
    height = rng.uniform(14, 20)
    width = height * rng.uniform(0.45, 0.7)
    left = (SIDE - width) / 2 + rng.uniform(-3, 3)
    top = (SIDE - height) / 2 + rng.uniform(-2.5, 2.5)
    slant, pen = rng.uniform(-0.15, 0.35), rng.uniform(0.9, 1.7)

    def placed(point: Point) -> Point:
        along = point[1] / 2
        return left + width * point[0] + slant * height * (0.5 - along), top + height * along

    strokes = [(placed(begin), placed(end)) for begin, end in STROKES[digit]]
    values = bytearray()
    for y in range(SIDE):
        for x in range(SIDE):
            away = min(_distance((x + 0.5, y + 0.5), stroke) for stroke in strokes)
            light = 255 * min(1.0, max(0.0, pen + 0.5 - away)) + rng.gauss(0, 12)
            values.append(min(255, max(0, round(light))))
    return bytes(values)


def _distance(point: Point, stroke: tuple[Point, Point]) -> float:
    (x, y), (end_x, end_y) = stroke
    across, down = end_x - x, end_y - y
    share = ((point[0] - x) * across + (point[1] - y) * down) / (across**2 + down**2)
    share = min(1.0, max(0.0, share))
    return math.hypot(point[0] - x - share * across, point[1] - y - share * down)
