"""Decodes and resizes pictures by Pillow; processes that decode import it, and not TensorFlow."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PIL import Image

from trainer.data.pictures.crops import Crop
from trainer.data.pictures.decoding import decode_rgb
from trainer.data.pictures.decoding_parts import Pixels
from trainer.data.pictures.decoding_processes import Decoding, decoding_by


def put_by_pillow(
    target: Pixels, data: bytes, name: str, crop_of: Callable[[int, int], Crop]
) -> None:
    """Decode, cut the crop out, and resize it."""
    picture = decode_rgb(data, name)
    crop = crop_of(*picture.size)
    # From the crop's own pixels, as torch resizes: `box` would look beyond its edges.
    part = picture.crop(crop.box).resize(target.shape[:2], Image.Resampling.BILINEAR)
    pixels = np.asarray(part)
    target[:] = pixels[:, ::-1] if crop.is_flipped else pixels


def decoding_of_batches(num_workers: int) -> Decoding:
    """Decode on so many cores, for as many threads, of which each has a batch of its own."""
    return decoding_by(num_workers, [__name__], num_lanes=1)
