"""Decodes and crops pictures on threads ahead of training, into memory that a GPU copies from.

Threads, not processes: decoding and resizing let go of Python's lock, nothing is copied between
processes, and no process is forked beside MPI, CUDA or a checkpoint that is being written.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from trainer.data.pictures.corrupt import CorruptPictures, places_without
from trainer.data.pictures.crops import Crop
from trainer.data.pictures.decoding import decode_rgb
from trainer.data.pictures.header import (
    JPEG_START,
    CorruptPicture,
    is_deep_png,
    require_decodable,
    too_deep,
)
from trainer.data.pictures.jpeg_crop import JpegCropper
from trainer.data.pictures.read_ahead import announced, read_ahead
from trainer.data.pictures.splits import Pictures
from trainer.pytorch.transfer import pin

# Mean and standard deviation of ImageNet's training pixels, as all pretrained networks want them.
PIXEL_MEAN, PIXEL_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

Pixels = npt.NDArray[np.uint8]
# Gives the part to see of picture `index`, which is so wide and high.
CropOf = Callable[[int, int, int], Crop]
# Changes the pixels of picture `index`, 3 x size x size bytes.
Augment = Callable[[int, Tensor], Tensor]


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


class DecodingThreads:
    """Threads that decode, on each of which tensor operations start no further ones.

    They end with the process.
    """

    def __init__(self, num_threads: int) -> None:
        self.num_threads = num_threads
        self._pool = ThreadPoolExecutor(num_threads, thread_name_prefix="decoding")
        # torch.set_num_threads is for the thread that calls it and for those whose first tensor
        # operation comes later: what it was is put back once each of these has asked for it.
        num_before = torch.get_num_threads()
        all_there = threading.Barrier(num_threads + 1)
        for _ in range(num_threads):
            self._pool.submit(_be_one_thread, all_there)
        all_there.wait()
        torch.set_num_threads(num_before)
        self._counting = threading.Lock()
        self._num_decoded, self._decoding_s = 0, 0.0

    def start(self, work: Callable[..., None], *arguments: object) -> Future[None]:
        """Run the work on one of the threads."""
        return self._pool.submit(work, *arguments)

    def count(self, num_decoded: int, core_s: float) -> None:
        """Count pictures, and the seconds of a core that went into them."""
        with self._counting:
            self._num_decoded += num_decoded
            self._decoding_s += core_s

    @property
    def decoded_per_core_per_s(self) -> float | None:
        """Pictures that one core decodes in a second; None before there were any."""
        return self._num_decoded / self._decoding_s if self._decoding_s else None


def _be_one_thread(all_there: threading.Barrier) -> None:
    torch.set_num_threads(1)
    torch.get_num_threads()
    all_there.wait()


class Loader:
    """Pictures of one split as batches in memory, pinned where the device is a GPU.

    `cropper` decodes what it can. A corrupt picture is an error, or with `corrupt` it is left out
    of its batch; `is_filled` then repeats another of the batch in its place, so that all ranks'
    batches are as large as before.
    """

    def __init__(
        self,
        pictures: Pictures,
        device: torch.device,
        *,
        size: int,
        threads: DecodingThreads,
        cropper: JpegCropper | None = None,
        corrupt: CorruptPictures | None = None,
        is_filled: bool = False,
    ) -> None:
        self._pictures = pictures
        self._device = device
        self._size = size
        self._threads = threads
        self._cropper = cropper
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
        return read_ahead(
            known, lambda samples: self._begin(samples, crop_of, augment), self._finish
        )

    def _begin(self, samples: Sequence[int], crop_of: CropOf, augment: Augment | None) -> _Decoding:
        # Rows of pixels with their three colours together: channels last once it is permuted.
        shape = (len(samples), self._size, self._size, 3)
        images = torch.empty(shape, dtype=torch.uint8, pin_memory=self._device.type == "cuda")
        num_parts = min(self._threads.num_threads, len(samples))
        decoding = _Decoding(images=images, samples=samples, parts=[], corrupt={})
        decoding.parts.extend(
            self._threads.start(
                self._fill, decoding, range(part, len(samples), num_parts), crop_of, augment
            )
            for part in range(num_parts)
        )
        return decoding

    def _fill(
        self,
        decoding: _Decoding,
        places: Sequence[int],
        crop_of: CropOf,
        augment: Augment | None,
    ) -> None:
        # The thread's own time: neither that of waiting for a file or a core, nor of other threads.
        began_s = time.thread_time()
        for place in places:
            target, index = decoding.images[place], decoding.samples[place]
            try:
                self._put(target, index, crop_of)
            except CorruptPicture as error:
                decoding.corrupt[place] = error
                continue
            if augment is not None:
                target.copy_(augment(index, target.permute(2, 0, 1)).permute(1, 2, 0))
        self._threads.count(len(places), time.thread_time() - began_s)

    def _put(self, target: Tensor, index: int, crop_of: CropOf) -> None:
        """Decode one picture, cut the crop out, and write it into `target`, size x size x 3."""
        data, of_size = self._pictures.read(index), functools.partial(crop_of, index)
        address = target.data_ptr()
        if self._cropper and self._cropper.put(data, of_size, side=self._size, address=address):
            return
        self._put_by_library(target, data, index, crop_of)

    def _put_by_library(self, target: Tensor, data: bytes, index: int, crop_of: CropOf) -> None:
        """Do it step by step."""
        # By NumPy: each operation of torch lets go of Python's lock, which 16 threads wait for.
        picture = decode(data, lambda: self._pictures.name(index))
        height, width, _ = picture.shape
        crop = crop_of(index, width, height)
        left, top, right, bottom = crop.box
        # Without the copy PyTorch would resize by another, slower kernel.
        part = np.ascontiguousarray(picture[None, top:bottom, left:right])
        resized = functional.interpolate(
            torch.from_numpy(part).permute(0, 3, 1, 2),
            size=(self._size, self._size),
            mode="bilinear",
            antialias=True,
        )
        pixels = resized.numpy()[0].transpose(1, 2, 0)
        np.copyto(target.numpy(), pixels[:, ::-1] if crop.is_flipped else pixels)

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
    """Track a batch that threads decode: its buffer, their parts, and its corrupt pictures."""

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


def decode(data: bytes, name: Callable[[], str]) -> Pixels:
    """Decode a JPEG or PNG to height x width x 3 bytes; raises CorruptPicture for what is none.

    A JPEG of which libjpeg-turbo reports an error or a warning is Pillow's to decode or to refuse.
    """
    require_decodable(data, name)
    if data.startswith(JPEG_START):
        from simplejpeg import decode_jpeg  # only JPEGs need it

        with contextlib.suppress(ValueError):
            return decode_jpeg(data)
    elif is_deep_png(data):
        raise too_deep(name())
    return np.array(decode_rgb(data, name()))
