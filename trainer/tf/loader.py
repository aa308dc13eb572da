"""Decodes and crops pictures ahead of training in tf.data, into batches of bytes.

Python chooses the pictures and their crops, as in every framework; tf.data's threads run Pillow, or wait
for processes that do (trainer.data.pictures.decoding_processes). TensorFlow's own decoder with an
antialiased resizing takes longer (docs/adr/0012).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
import tensorflow as tf

from trainer.common.errors import TrainingError
from trainer.data.pictures.corrupt import CorruptPictures, places_without
from trainer.data.pictures.decoding_processes import Decoding
from trainer.data.pictures.jpeg_crop import DecoderName
from trainer.data.pictures.put_crop import CropOf, PutCrop, encoded, our_cropper
from trainer.data.pictures.read_ahead import NUM_AHEAD, announced
from trainer.data.pictures.splits import Pictures
from trainer.tf.decoding import put_by_pillow
from trainer.tf.strategy import DeviceName

# Labels of the places of a batch that hold no picture.
NO_PICTURE = -1
# Batches that lie on a GPU before their steps begin.
NUM_ON_DEVICE = 2


class Reading(Protocol):
    """Batches under way, to be left (`with`) before the process ends.

    `dataset` has one element a batch and no end; `Source.batch_of` makes a batch of it. Leaving it
    raises the TrainingError that ended the batches, of which tf.data makes another error.
    """

    dataset: tf.data.Dataset

    def take(self) -> Sequence[int]:
        """Give the pictures of the next batch, once it has come."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...


class Source(Protocol):
    """Read batches of one size in a given order."""

    def read(self, order: Iterable[Sequence[int]], crop_of: CropOf) -> Reading:
        """Begin to read a batch for each of these lists of pictures, in this order."""
        ...

    def batch_of(self, element: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Give an element's pictures (N x size x size x 3, bytes) and labels (int64), in a graph.

        Places without a picture are black and have the label NO_PICTURE.
        """
        ...


class Loader:
    """Pictures of one split as batches, by way of tf.data, which keeps their order.

    A batch has `batch` places. `decoder` "fast" raises TrainingError where it cannot be used. A corrupt
    picture is an error, or with `corrupt` it is left out; `is_filled` then repeats another of the batch in
    its place. Batches go to `device` ahead of their steps.
    """

    def __init__(
        self,
        pictures: Pictures,
        *,
        batch: int,
        size: int,
        decoding: Decoding,
        device: DeviceName = "cpu",
        decoder: DecoderName = "library",
        corrupt: CorruptPictures | None = None,
        is_filled: bool = False,
    ) -> None:
        self._pictures = pictures
        self._batch = batch
        self._size = size
        self._decoding = decoding
        self._device = device
        self._decoder: DecoderName = decoder
        if decoder == "fast":
            our_cropper()  # compiled once, here
        self._corrupt = corrupt
        self._is_filled = is_filled

    def read(self, order: Iterable[Sequence[int]], crop_of: CropOf) -> Reading:
        """Begin to read a batch for each of these lists of pictures, in this order; decodes ahead.

        The reading raises TrainingError, naming the file, for a picture that cannot be read, and for
        corrupt ones as `CorruptPictures` does.
        """
        return _Decoding(
            announced(order, self._pictures.announce),
            lambda samples: self._decode_batch(samples, crop_of),
            shape=(self._batch, self._size, self._size, 3),
            num_workers=self._decoding.num_threads,
            device=self._device,
        )

    def batch_of(self, element: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Give the element's two tensors."""
        return element

    def _decode_batch(
        self, samples: Sequence[int], crop_of: CropOf
    ) -> tuple[np.ndarray, np.ndarray, Sequence[int]]:
        images = np.zeros((self._batch, self._size, self._size, 3), np.uint8)
        labels = np.full(self._batch, NO_PICTURE, np.int64)
        put = PutCrop(decoder=self._decoder, crop_of=crop_of, by_library=put_by_pillow)
        files = encoded(self._pictures, samples)
        corrupt = self._decoding.decode(put, files, images[: len(samples)]).corrupt
        if corrupt:
            places = places_without(
                corrupt, len(samples), counted=self._corrupt, is_filled=self._is_filled
            )
            images[: len(places)] = images[places]
            images[len(places) :] = 0
            samples = [samples[place] for place in places]
        labels[: len(samples)] = [self._pictures.labels[index] for index in samples]
        return images, labels, samples


class _Decoding:
    """Batches on their way through tf.data, whose threads call Python."""

    def __init__(
        self,
        order: Iterable[Sequence[int]],
        decode: Callable[[Sequence[int]], tuple[np.ndarray, np.ndarray, Sequence[int]]],
        *,
        shape: tuple[int, ...],
        num_workers: int,
        device: DeviceName,
    ) -> None:
        self._order = order
        self._decode_batch = decode
        self._shape = shape
        self._is_over = False
        # By the number of their batch, as they come from the threads.
        self._samples: dict[int, Sequence[int]] = {}
        self._num_taken = 0
        self._errors: list[TrainingError] = []
        # In the buffer, in the threads, and in the generator.
        self._most_on_their_way = NUM_AHEAD + num_workers + 1
        dataset = tf.data.Dataset.from_generator(
            self._indices,
            output_signature=(tf.TensorSpec((), tf.int64), tf.TensorSpec((None,), tf.int64)),
        )
        dataset = dataset.map(self._load, num_parallel_calls=num_workers, deterministic=True)
        dataset = dataset.prefetch(NUM_AHEAD).with_options(_options(num_workers))
        self._batches: Iterator[tuple[tf.Tensor, tf.Tensor]] = iter(dataset)
        # Whoever iterates over it, this iterator stays ours: it has to be emptied in the end.
        self.dataset: tf.data.Dataset = (
            tf.data.Dataset.range(1).repeat().map(lambda _: self._batches.get_next())
        ).with_options(_untuned())
        if device == "cuda":
            self.dataset = ahead_on("/GPU:0", self.dataset)

    def take(self) -> Sequence[int]:
        """Give the pictures of the next batch, once it has come."""
        number, self._num_taken = self._num_taken, self._num_taken + 1
        return self._samples.pop(number)

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        """Take what is still on its way, undecoded; raises the TrainingError that ended the batches.

        A thread of tf.data's that calls Python while the process ends is lost, and TensorFlow, which
        waits for its threads when it frees the iterator, would wait for ever.
        """
        self._is_over = True
        for _ in range(self._most_on_their_way + 1):
            try:
                next(self._batches)
            except StopIteration:
                break
            except tf.errors.OpError:
                continue
        # With its threads, and now: it refers to us by our generator.
        self._batches = iter(())
        if self._errors and isinstance(error, tf.errors.OpError):
            raise self._errors[0] from None

    def _indices(self) -> Iterator[tuple[int, np.ndarray]]:
        for number, samples in enumerate(self._order):
            if self._is_over:
                return
            yield number, np.array(samples, np.int64)

    def _load(self, number: tf.Tensor, samples: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # A call for a batch, not for each picture: a call from a graph takes Python's lock.
        images, labels = tf.numpy_function(
            self._decode, [number, samples], (tf.uint8, tf.int64), stateful=False
        )
        return tf.ensure_shape(images, self._shape), tf.ensure_shape(labels, self._shape[:1])

    def _decode(self, number: np.ndarray, samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self._is_over:
            return np.zeros(self._shape, np.uint8), np.zeros(self._shape[0], np.int64)
        try:
            images, labels, kept = self._decode_batch(samples.tolist())
        except TrainingError as error:
            # tf.data makes an error of its own of it.
            self._errors.append(error)
            raise
        self._samples[int(number)] = kept
        return images, labels


def _options(num_workers: int) -> tf.data.Options:
    """Set the number of tf.data's own threads, and turn its self-tuning off."""
    options = _untuned()
    options.threading.private_threadpool_size = num_workers
    options.threading.max_intra_op_parallelism = 1
    options.deterministic = True
    return options


def ahead_on(device: str, dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Copy elements to the device ahead of their steps.

    As tf.data.experimental.prefetch_to_device, which would lose the options: its copies are a source of
    their own.
    """
    copied = dataset.apply(tf.data.experimental.copy_to_device(device))
    return copied.with_options(_untuned()).prefetch(NUM_ON_DEVICE)


def _untuned() -> tf.data.Options:
    """Turn self-tuning off, whose thread sleeps for as long again as the iterator has lived.

    Who frees the iterator often waits for that sleep (seen by gdb with TensorFlow 2.18.1:
    docs/benchmarks/training.md).
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return options


class Noise:
    """One batch of noise that stays on the device, to measure training without its data."""

    def __init__(self, *, num_classes: int, batch: int, size: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        # A constant of a graph that lies on the device already is not copied to it.
        self._images = tf.identity(rng.integers(0, 256, (batch, size, size, 3), np.uint8))
        self._labels = tf.identity(rng.integers(0, num_classes, batch))

    def read(self, order: Iterable[Sequence[int]], _crop_of: CropOf) -> Reading:
        """Give the batch again and again."""
        return _Repeating(iter(order))

    def batch_of(self, element: Any) -> tuple[tf.Tensor, tf.Tensor]:  # noqa: ARG002
        """Give the one batch."""
        return self._images, self._labels


class _Repeating(contextlib.AbstractContextManager[Any]):
    """Elements that say nothing; of their batches it is told which pictures they stand for."""

    def __init__(self, order: Iterator[Sequence[int]]) -> None:
        self._order = order
        self.dataset = tf.data.Dataset.range(1).repeat().with_options(_untuned())

    def take(self) -> Sequence[int]:
        """Give the pictures that the next batch stands for."""
        return next(self._order)

    def __exit__(self, *_error: object) -> None:
        """Do nothing: nothing is under way."""
