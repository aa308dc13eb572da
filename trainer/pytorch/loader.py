"""Gives batches of pictures, decoded and cropped ahead of training, in memory that a GPU copies from.

trainer.pytorch.decoding says on how many threads or processes. No process is forked from this one, beside
MPI, CUDA or a checkpoint that is being written.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from trainer.data.pictures.corrupt import CorruptPictures, places_without
from trainer.data.pictures.decoding_parts import Put
from trainer.data.pictures.header import CorruptPicture
from trainer.data.pictures.jpeg_crop import DecoderName
from trainer.data.pictures.put_crop import CropOf, PutCrop, encoded, our_cropper
from trainer.data.pictures.read_ahead import announced, read_ahead
from trainer.data.pictures.splits import Pictures
from trainer.pytorch.decoding import Augment, DecodingWorkers, PutAugmented, put_by_torch
from trainer.pytorch.transfer import pin

# Mean and standard deviation of ImageNet's training pixels, as all pretrained networks want them.
PIXEL_MEAN, PIXEL_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Pictures (N x 3 x size x size, bytes, channels last), labels, and which they are.

    On the device, or in memory to be copied there by trainer.pytorch.transfer.
    """

    images: Tensor
    labels: Tensor
    samples: Sequence[int]


class Source(Protocol):
    """Read batches of pictures in a given order."""

    def batches(
        self, order: Iterable[Sequence[int]], crop_of: CropOf, augment: Augment | None = None, /
    ) -> Iterator[Batch]:
        """Give a batch for each of these lists of pictures, in this order."""
        ...


def scale(images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Turn bytes into floats, and take `mean` from them in units of `std`."""
    return images.to(torch.float32).sub_(mean).div_(std)


def normalise(
    images: Tensor, compute: Callable[[Tensor, Tensor, Tensor], Tensor] = scale
) -> Tensor:
    """Turn bytes into floats as pretrained networks want them, in the same memory format."""
    return compute(images, *_pixel_scale(images.device))


@functools.cache
def _pixel_scale(device: torch.device) -> tuple[Tensor, Tensor]:
    """Copy mean and deviation to the device once: a copy in each step would wait for the one before."""
    mean, std = (torch.tensor(each).mul_(255).view(1, 3, 1, 1) for each in (PIXEL_MEAN, PIXEL_STD))
    return mean.to(device), std.to(device)


class Loader:
    """Pictures of one split as batches in memory, pinned where the device is a GPU.

    `decoder` "fast" raises TrainingError where it cannot be used. A corrupt picture is an error, or with
    `corrupt` it is left out of its batch; `is_filled` then repeats another of the batch in its place, so
    that all ranks' batches are as large as before.
    """

    def __init__(
        self,
        pictures: Pictures,
        device: torch.device,
        *,
        size: int,
        workers: DecodingWorkers,
        decoder: DecoderName = "library",
        corrupt: CorruptPictures | None = None,
        is_filled: bool = False,
    ) -> None:
        self._pictures = pictures
        self._device = device
        self._size = size
        self._workers = workers
        self._decoder: DecoderName = decoder
        if decoder == "fast":
            our_cropper()  # compiled once, here
        self._corrupt = corrupt
        self._is_filled = is_filled

    def batches(
        self, order: Iterable[Sequence[int]], crop_of: CropOf, augment: Augment | None = None, /
    ) -> Iterator[Batch]:
        """Give a batch for each of these lists of pictures, in this order; decodes some ahead.

        Raises TrainingError, naming the file, for a picture that cannot be read, and for corrupt
        ones as `CorruptPictures` does.
        """
        known = announced(order, self._pictures.announce)
        put: Put = PutCrop(decoder=self._decoder, crop_of=crop_of, by_library=put_by_torch)
        if augment is not None:
            put = PutAugmented(put=put, augment=augment)
        return read_ahead(known, lambda samples: self._begin(samples, put), self._finish)

    def _begin(self, samples: Sequence[int], put: Put) -> _Decoding:
        # Rows of pixels with their three colours together: channels last once it is permuted.
        shape = (len(samples), self._size, self._size, 3)
        images = torch.empty(shape, dtype=torch.uint8, pin_memory=self._device.type == "cuda")
        num_parts = min(self._workers.num_workers, len(samples))
        decoding = _Decoding(images=images, samples=samples, parts=[], corrupt={})
        decoding.parts.extend(
            self._workers.start(self._fill, decoding, range(part, len(samples), num_parts), put)
            for part in range(num_parts)
        )
        return decoding

    def _fill(self, decoding: _Decoding, places: range, put: Put) -> None:
        files = encoded(self._pictures, (decoding.samples[place] for place in places))
        targets = decoding.images.numpy()[places.start :: places.step]
        for number, error in self._workers.decode(put, files, targets).items():
            decoding.corrupt[places[number]] = error

    def _finish(self, decoding: _Decoding) -> Batch:
        images, samples = decoding.images, decoding.samples
        if decoding.corrupt:
            places = places_without(
                decoding.corrupt, len(samples), counted=self._corrupt, is_filled=self._is_filled
            )
            images, samples = images[places], [samples[place] for place in places]
        labels = torch.tensor([self._pictures.labels[index] for index in samples])
        return Batch(
            images=images.permute(0, 3, 1, 2),
            labels=pin(labels, self._device),
            samples=samples,
        )


@dataclass(frozen=True, kw_only=True)
class _Decoding:
    """Track a batch that is being decoded: its buffer, their parts, and its corrupt pictures."""

    images: Tensor
    samples: Sequence[int]
    parts: list[Future[None]]
    corrupt: dict[int, CorruptPicture]


class Noise:
    """One batch of noise that stays on the device, to measure training without its data."""

    def __init__(
        self, device: torch.device, *, num_classes: int, batch: int, size: int, seed: int
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        shape = (batch, size, size, 3)
        images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
        self._images = images.to(device).permute(0, 3, 1, 2)
        self._labels = torch.randint(0, num_classes, (batch,), generator=generator).to(device)

    def batches(
        self, order: Iterable[Sequence[int]], _crop_of: CropOf, _augment: Augment | None = None, /
    ) -> Iterator[Batch]:
        """Give the batch, or as much of its beginning, again and again."""
        for samples in order:
            number = len(samples)
            yield Batch(images=self._images[:number], labels=self._labels[:number], samples=samples)
