"""Decodes and crops pictures ahead of training in tf.data, into batches of bytes.

Python chooses the pictures and their crops, as in every framework; tf.data's threads run Pillow,
which lets go of Python's lock. TensorFlow's own decoder with an antialiased resizing takes longer
(docs/adr/0012).
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import tensorflow as tf
from PIL import Image

from trainer.common.errors import TrainingError
from trainer.common.world import World
from trainer.data.pictures.crops import Crop
from trainer.data.pictures.decoding import decode_rgb
from trainer.data.pictures.read_ahead import NUM_AHEAD, announced
from trainer.data.pictures.splits import Pictures
from trainer.tf.strategy import DeviceName

# Gives the part to see of picture `index`, which is so wide and high.
CropOf = Callable[[int, int, int], Crop]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Pictures (N x size x size x 3, bytes), their labels (int64), and which pictures they are."""

    images: np.ndarray | tf.Tensor
    labels: np.ndarray
    samples: Sequence[int]


class Source(Protocol):
    """A source of batches."""

    def batches(self, order: Iterable[Sequence[int]], crop_of: CropOf) -> Iterator[Batch]:
        """Give a batch for each of these lists of pictures, in this order."""
        ...


def num_workers(world: World, device: DeviceName) -> int:
    """Give how many threads decode: a GPU's rank has its share of cores, another computes on them."""
    if device == "cpu":
        return world.num_threads
    # Where the launcher has given the rank cores of its own, they are not parted again.
    return max(world.num_threads, len(os.sched_getaffinity(0)) // world.local_size)


class Loader:
    """Pictures of one split as batches, by way of tf.data, which keeps their order."""

    def __init__(self, pictures: Pictures, *, size: int, num_workers: int) -> None:
        self._pictures = pictures
        self._size = size
        self._num_workers = num_workers

    def batches(self, order: Iterable[Sequence[int]], crop_of: CropOf) -> Iterator[Batch]:
        """Give a batch for each of these lists of pictures, in this order; decodes some ahead.

        Raises TrainingError, naming the file, for a picture that cannot be read.
        """
        reading = _Reading(
            order,
            self._pictures,
            lambda samples: self._decode_batch(samples, crop_of),
            size=self._size,
            num_workers=self._num_workers,
        )
        batches = reading.batches()
        # Also where an error's traceback holds on to the batches until the process ends.
        weakref.finalize(batches, reading.end)
        return batches

    def _decode_batch(self, samples: Sequence[int], crop_of: CropOf) -> np.ndarray:
        images = np.empty((len(samples), self._size, self._size, 3), np.uint8)
        for target, index in zip(images, samples, strict=True):
            self._put(target, index, crop_of)
        return images

    def _put(self, target: np.ndarray, index: int, crop_of: CropOf) -> None:
        """Decode one picture, cut the crop out, and write it into `target`, size x size x 3."""
        data = self._pictures.read(index)
        picture = decode_rgb(data, self._pictures.name(index))
        crop = crop_of(index, *picture.size)
        # From the crop's own pixels, as torch resizes: `box` would look beyond its edges.
        part = picture.crop(crop.box).resize((self._size, self._size), Image.Resampling.BILINEAR)
        pixels = np.asarray(part)
        target[:] = pixels[:, ::-1] if crop.is_flipped else pixels


class _Reading:
    """Batches on their way through tf.data, whose threads call Python."""

    def __init__(
        self,
        order: Iterable[Sequence[int]],
        pictures: Pictures,
        decode: Callable[[Sequence[int]], np.ndarray],
        *,
        size: int,
        num_workers: int,
    ) -> None:
        self._order = order
        self._pictures = pictures
        self._decode_batch = decode
        self._size = size
        self._is_over = False
        self._asked: deque[Sequence[int]] = deque()
        self._errors: list[TrainingError] = []
        # In the buffer, in the threads, and in the generator.
        self._most_on_their_way = NUM_AHEAD + num_workers + 1
        dataset = tf.data.Dataset.from_generator(
            self._indices, output_signature=tf.TensorSpec((None,), tf.int64)
        )
        dataset = dataset.map(self._load, num_parallel_calls=num_workers, deterministic=True)
        dataset = dataset.prefetch(NUM_AHEAD).with_options(_options(num_workers))
        self._images: Iterator[tf.Tensor] = iter(dataset)

    def batches(self) -> Iterator[Batch]:
        """Give them in order; raises the TrainingError of one that cannot be decoded."""
        try:
            for images in self._images:
                samples = self._asked.popleft()
                labels = np.array([self._pictures.labels[index] for index in samples], np.int64)
                yield Batch(images=images, labels=labels, samples=samples)
        except tf.errors.OpError:
            if not self._errors:
                raise
            raise self._errors[0] from None

    def end(self) -> None:
        """Take what is still on its way, undecoded.

        A thread of tf.data's that calls Python while the process ends is lost, and TensorFlow, which
        waits for its threads when it frees the iterator, would wait for ever.
        """
        self._is_over = True
        for _ in range(self._most_on_their_way + 1):
            try:
                next(self._images)
            except StopIteration:
                break
            except tf.errors.OpError:
                continue
        # With its threads, and now: it refers to us by our generator.
        self._images = iter(())

    def _indices(self) -> Iterator[np.ndarray]:
        for samples in announced(self._order, self._pictures.announce):
            if self._is_over:
                return
            self._asked.append(samples)
            yield np.array(samples, np.int64)

    def _load(self, samples: tf.Tensor) -> tf.Tensor:
        # A call for a batch, not for each picture: a call from a graph takes Python's lock.
        images = tf.numpy_function(self._decode, [samples], tf.uint8, stateful=False)
        return tf.ensure_shape(images, (None, self._size, self._size, 3))

    def _decode(self, samples: np.ndarray) -> np.ndarray:
        if self._is_over:
            return np.empty((0, self._size, self._size, 3), np.uint8)
        try:
            return self._decode_batch(samples.tolist())
        except TrainingError as error:
            # tf.data makes an error of its own of it.
            self._errors.append(error)
            raise


def _options(num_workers: int) -> tf.data.Options:
    """Set the number of tf.data's own threads, and turn its self-tuning off."""
    options = tf.data.Options()
    options.threading.private_threadpool_size = num_workers
    options.threading.max_intra_op_parallelism = 1
    options.autotune.enabled = False
    options.deterministic = True
    return options


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
