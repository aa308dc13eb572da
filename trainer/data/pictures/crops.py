"""Chooses the crop of a picture, mirrored or not; alike for every framework.

Source: Szegedy et al. 2014, arXiv 1409.4842 (crops of 8 to 100 % of the area, sides 3:4 to 4:3).
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

AREA = (0.08, 1.0)
ASPECT = (3 / 4, 4 / 3)
NUM_TRIES = 10
# 224 of 256 pixels, as ImageNet's validation set is looked at since AlexNet.
CENTER = 0.875


@dataclass(frozen=True, kw_only=True, slots=True)
class Crop:
    """A rectangle of a picture in pixels, and whether it is mirrored left to right."""

    left: int
    top: int
    width: int
    height: int
    is_flipped: bool = False

    @property
    def box(self) -> tuple[int, int, int, int]:
        """Left, top, right and bottom, as Pillow takes them."""
        return self.left, self.top, self.left + self.width, self.top + self.height


def picture_rng(seed: int, epoch: int, index: int) -> random.Random:
    """Give the generator of one picture in one epoch: equal on every rank and in every worker."""
    return random.Random(f"{seed}/{epoch}/{index}")


def random_crop(
    width: int,
    height: int,
    rng: random.Random,
    *,
    area: tuple[float, float] = AREA,
    aspect: tuple[float, float] = ASPECT,
) -> Crop:
    """Give a random part of a picture of that size, mirrored half of the time.

    The area's share and the logarithm of width over height are uniform. Where no try fits, it is
    the largest rectangle in the middle whose sides are allowed.
    """
    is_flipped = rng.random() < 0.5
    logs = math.log(aspect[0]), math.log(aspect[1])
    for _ in range(NUM_TRIES):
        wanted = width * height * rng.uniform(*area)
        ratio = math.exp(rng.uniform(*logs))
        crop_width, crop_height = round(math.sqrt(wanted * ratio)), round(math.sqrt(wanted / ratio))
        if 0 < crop_width <= width and 0 < crop_height <= height:
            return Crop(
                left=rng.randrange(width - crop_width + 1),
                top=rng.randrange(height - crop_height + 1),
                width=crop_width,
                height=crop_height,
                is_flipped=is_flipped,
            )
    crop_width, crop_height = width, height
    if width < height * aspect[0]:
        crop_height = max(1, round(width / aspect[0]))
    elif width > height * aspect[1]:
        crop_width = max(1, round(height * aspect[1]))
    return _in_the_middle(width, height, crop_width, crop_height, is_flipped=is_flipped)


def epoch_crop(seed: int, epoch: int, index: int, width: int, height: int) -> Crop:
    """Give a training's crop of one picture in one epoch."""
    return random_crop(width, height, picture_rng(seed, epoch, index))


def center_crop(_index: int, width: int, height: int) -> Crop:
    """Give an evaluation's crop: the square in the middle whose side is CENTER of the shorter one."""
    side = max(1, round(min(width, height) * CENTER))
    return _in_the_middle(width, height, side, side, is_flipped=False)


def _in_the_middle(
    width: int, height: int, crop_width: int, crop_height: int, *, is_flipped: bool
) -> Crop:
    return Crop(
        left=(width - crop_width) // 2,
        top=(height - crop_height) // 2,
        width=crop_width,
        height=crop_height,
        is_flipped=is_flipped,
    )
