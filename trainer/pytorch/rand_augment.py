"""Changes a picture's geometry and colours at random, as RandAugment does.

Source: Cubuk et al. 2019, arXiv 1909.13719 (two of fourteen changes, of one magnitude); the
deviation of the magnitude is that of Wightman et al. 2021, arXiv 2110.00476. Changes are
torchvision's; which, and how strong, comes from the picture's own generator, so that neither ranks
nor workers decide on it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional

STRONGEST = 10
NUM_CHANGES, DEVIATION = 2, 0.5
# What moves into the picture, as in the recipes that came with the paper.
GREY = [128.0, 128.0, 128.0]


def rand_augment(image: Tensor, rng: random.Random, *, magnitude: float) -> Tensor:
    """Give 3 x H x W bytes changed twice, of about this magnitude of at most STRONGEST."""
    for change in rng.choices(CHANGES, k=NUM_CHANGES):
        strength = rng.gauss(magnitude, DEVIATION) / STRONGEST
        image = change(image, min(max(strength, 0.0), 1.0) * rng.choice((-1, 1)))
    return image


def augment_of(epoch: str, magnitude: float, index: int, image: Tensor) -> Tensor:
    """Give picture `index` as the epoch of that name sees it."""
    rng = random.Random(f"{epoch}/{index}/augment")
    return rand_augment(image, rng, magnitude=magnitude)


def _move(image: Tensor, **changed: Any) -> Tensor:
    still: dict[str, Any] = {"angle": 0.0, "translate": [0, 0], "scale": 1.0, "shear": [0.0, 0.0]}
    return functional.affine(
        image, **still | changed, interpolation=InterpolationMode.BILINEAR, fill=GREY
    )


def _shear(place: int) -> Callable[[Tensor, float], Tensor]:
    """Shear along one axis by up to 0.3, which is 16.7 degrees."""
    return lambda image, strength: _move(
        image, shear=[16.7 * strength * (place == each) for each in (0, 1)]
    )


def _translate(place: int) -> Callable[[Tensor, float], Tensor]:
    """Move along one axis by up to 0.45 of the side."""
    return lambda image, strength: _move(
        image,
        translate=[round(0.45 * image.shape[-1] * strength) * (place == each) for each in (0, 1)],
    )


def _posterize(image: Tensor, strength: float) -> Tensor:
    """Keep 8 to 4 bits of each colour."""
    return functional.posterize(image, 8 - round(4 * abs(strength)))


def _solarize(image: Tensor, strength: float) -> Tensor:
    """Invert what is brighter than a bound."""
    return functional.solarize(image, 255 - round(255 * abs(strength)))


# `strength` is -1 to 1; factors of colours are 0.1 to 1.9.
CHANGES: tuple[Callable[[Tensor, float], Tensor], ...] = (
    lambda image, _: image,
    lambda image, _: functional.autocontrast(image),
    lambda image, _: functional.equalize(image),
    lambda image, strength: _move(image, angle=30.0 * strength),
    _shear(0),
    _shear(1),
    _translate(0),
    _translate(1),
    _posterize,
    _solarize,
    lambda image, strength: functional.adjust_brightness(image, 1 + 0.9 * strength),
    lambda image, strength: functional.adjust_saturation(image, 1 + 0.9 * strength),
    lambda image, strength: functional.adjust_contrast(image, 1 + 0.9 * strength),
    lambda image, strength: functional.adjust_sharpness(image, 1 + 0.9 * strength),
)
