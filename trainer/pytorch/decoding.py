"""Decodes, crops and resizes pictures: one of them, and many by threads and processes."""

from __future__ import annotations

import contextlib
import importlib.util
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from trainer.data.pictures.crops import Crop
from trainer.data.pictures.decoding import decode_rgb
from trainer.data.pictures.decoding_parts import Encoded, Pixels, Put
from trainer.data.pictures.decoding_processes import decoding_by
from trainer.data.pictures.header import (
    JPEG_START,
    CorruptPicture,
    is_deep_png,
    require_decodable,
    too_deep,
)

# Changes the pixels of picture `index`, 3 x size x size bytes; picklable.
Augment = Callable[[int, Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class PutAugmented:
    """Writes a picture's crop, and changes its pixels there."""

    put: Put
    augment: Augment

    def __call__(self, target: Pixels, file: Encoded) -> None:
        """Raise what `put` raises."""
        self.put(target, file)
        image = torch.from_numpy(target)
        image.copy_(self.augment(file.number, image.permute(2, 0, 1)).permute(1, 2, 0))


def put_by_torch(
    target: Pixels, data: bytes, name: str, crop_of: Callable[[int, int], Crop]
) -> None:
    """Decode by `decode`, and resize by PyTorch."""
    # By NumPy: each operation of torch lets go of Python's lock, which other threads wait for.
    picture = decode(data, lambda: name)
    height, width, _ = picture.shape
    crop = crop_of(width, height)
    left, top, right, bottom = crop.box
    # Without the copy PyTorch would resize by another, slower kernel.
    part = np.ascontiguousarray(picture[None, top:bottom, left:right])
    resized = functional.interpolate(
        torch.from_numpy(part).permute(0, 3, 1, 2),
        size=target.shape[:2],
        mode="bilinear",
        antialias=True,
    )
    pixels = resized.numpy()[0].transpose(1, 2, 0)
    np.copyto(target, pixels[:, ::-1] if crop.is_flipped else pixels)


class DecodingWorkers:
    """Decodes parts of batches: on threads, or in processes where there are many.

    Processes import the modules first. Tensor operations start no further threads on either. Threads
    end with this process, processes with this object.
    """

    def __init__(self, num_workers: int, modules: Sequence[str] = ()) -> None:
        self.num_workers = num_workers
        jpeg = ["simplejpeg"] if importlib.util.find_spec("simplejpeg") else []
        decoding = decoding_by(num_workers, [__name__, *jpeg, *modules])
        self._decode, num_threads = decoding.decode, decoding.num_threads
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

    def decode(
        self, put: Put, files: Iterable[Encoded], targets: Pixels
    ) -> dict[int, CorruptPicture]:
        """Decode files, each into its place in `targets`; gives corrupt ones by their place.

        Call it on one of the threads; it blocks.
        """
        decoded = self._decode(put, files, targets)
        with self._counting:
            self._num_decoded += len(targets)
            self._decoding_s += decoded.cpu_s
        return decoded.corrupt

    @property
    def decoded_per_core_per_s(self) -> float | None:
        """Pictures that one core decodes in a second; None before there were any."""
        return self._num_decoded / self._decoding_s if self._decoding_s else None


def _be_one_thread(all_there: threading.Barrier) -> None:
    torch.set_num_threads(1)
    torch.get_num_threads()
    all_there.wait()


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
