"""Decodes and crops pictures on threads ahead of training, into batches of bytes.

Pillow lets go of Python's lock where it decodes and resizes, and an error names its file, which
one inside tf.data would not.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from PIL import Image

from trainer.common.errors import TrainingError
from trainer.common.world import World
from trainer.data.crops import Crop
from trainer.data.pictures import Pictures
from trainer.data.read_ahead import read_ahead
from trainer.tf.strategy import DeviceName

# Gives the part to see of picture `index`, which is so wide and high.
CropOf = Callable[[int, int, int], Crop]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Pictures (N x size x size x 3, bytes), their labels (int64), and which pictures they are."""

    images: np.ndarray
    labels: np.ndarray
    samples: Sequence[int]


class Source(Protocol):
    """Where batches come from."""

    def batches(self, order: Iterable[Sequence[int]], crop_of: CropOf) -> Iterator[Batch]:
        """Give a batch for each of these lists of pictures, in this order."""
        ...


def num_workers(world: World, device: DeviceName) -> int:
    """Give how many threads decode: a GPU's rank has its share of cores, another computes on them."""
    if device == "cpu":
        return world.num_threads
    return max(1, len(os.sched_getaffinity(0)) // world.local_size)


class Loader:
    """Pictures of one split as batches; the threads end with the process."""

    def __init__(self, pictures: Pictures, threads: ThreadPoolExecutor, *, size: int) -> None:
        self._pictures = pictures
        self._threads = threads
        self._size = size

    def batches(self, order: Iterable[Sequence[int]], crop_of: CropOf) -> Iterator[Batch]:
        """Give a batch for each of these lists of pictures, in this order; decodes some ahead.

        Raises TrainingError, naming the file, for a picture that cannot be read.
        """
        return read_ahead(order, lambda samples: self._begin(samples, crop_of), self._finish)

    def _begin(self, samples: Sequence[int], crop_of: CropOf) -> _Decoding:
        images = np.empty((len(samples), self._size, self._size, 3), np.uint8)
        parts = [
            self._threads.submit(self._put, images[place], index, crop_of)
            for place, index in enumerate(samples)
        ]
        return _Decoding(images=images, samples=samples, parts=parts)

    def _put(self, target: np.ndarray, index: int, crop_of: CropOf) -> None:
        """Decode one picture, cut the crop out, and write it into `target`, size x size x 3."""
        data = self._pictures.read(index)
        try:
            picture = Image.open(io.BytesIO(data)).convert("RGB")
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            message = f"`{self._pictures.name(index)}` is no whole picture: {error}"
            hint = "get the file again, or take it away"
            raise TrainingError(message, hint=hint) from None
        crop = crop_of(index, *picture.size)
        # From the crop's own pixels, as torch resizes: `box` would look beyond its edges.
        part = picture.crop(crop.box).resize((self._size, self._size), Image.Resampling.BILINEAR)
        pixels = np.asarray(part)
        target[:] = pixels[:, ::-1] if crop.is_flipped else pixels

    def _finish(self, decoding: _Decoding) -> Batch:
        labels = [self._pictures.labels[index] for index in decoding.samples]
        return Batch(
            images=decoding.images, labels=np.array(labels, np.int64), samples=decoding.samples
        )


@dataclass(frozen=True, kw_only=True)
class _Decoding:
    """A batch under way: its buffer in memory, and the threads' parts of it."""

    images: np.ndarray
    samples: Sequence[int]
    parts: Sequence[Future[None]]


class Noise:
    """One batch of noise, to measure training without its data."""

    def __init__(self, *, num_classes: int, batch: int, size: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self._images = rng.integers(0, 256, (batch, size, size, 3), np.uint8)
        self._labels = rng.integers(0, num_classes, batch)

    def batches(self, order: Iterable[Sequence[int]], _crop_of: CropOf) -> Iterator[Batch]:
        """Give the batch, or as much of its beginning, again and again."""
        for samples in order:
            number = len(samples)
            yield Batch(images=self._images[:number], labels=self._labels[:number], samples=samples)
