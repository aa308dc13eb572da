"""Reads COCO's pictures and masks ahead of training, on threads, in the order that is asked for.

Threads and not processes, which trainer.pytorch.decoding has for many workers: a GPU trains Mask R-CNN on
some dozens of pictures a second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import torch
from pycocotools import mask as run_lengths
from torch import Tensor

from trainer.common.errors import TrainingError
from trainer.common.rundir import RunDir
from trainer.data.pictures.coco import CocoObject, CocoPicture
from trainer.data.pictures.read_ahead import NUM_AHEAD
from trainer.data.synthesize.coco import make_default_coco
from trainer.pytorch.decoding import decode
from trainer.pytorch.transfer import each_tensor, pin

SYNTHETIC = "synthetic"
NUM_SYNTHETIC_TRAIN, NUM_SYNTHETIC_VAL = 320, 60
# COCO's pictures have at most 0.4 million pixels, and some dozens of objects.
MOST_MASK_BYTES = 1 << 30
# What pycocotools says of an outline that is none.
UNUSABLE = (KeyError, TypeError, ValueError, OverflowError)

R = TypeVar("R")
Masks = np.ndarray[tuple[int, int, int], np.dtype[np.uint8]]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Picture `number` as 3 x H x W bytes, and what torchvision's detectors take as its target."""

    number: int
    image: Tensor
    target: dict[str, Tensor]


def find_data(data: str | None, run_dir: RunDir, *, seed: int) -> Path:
    """Give the data's folder; a synthetic set is made by whichever rank of a node comes first."""
    if data == SYNTHETIC:
        return make_default_coco(
            num_train=NUM_SYNTHETIC_TRAIN, num_val=NUM_SYNTHETIC_VAL, seed=seed
        )
    return Path(data) if data else run_dir.input("coco")


def read_image(picture: CocoPicture) -> Tensor:
    """Decode the file to 3 x H x W bytes; raises TrainingError where it is not what COCO says."""
    try:
        data = picture.path.read_bytes()
    except OSError as error:
        message = f"`{picture.path}` cannot be read: {error.strerror}"
        raise TrainingError(message) from None
    pixels = decode(data, lambda: str(picture.path))
    height, width, _ = pixels.shape
    if (height, width) != (picture.height, picture.width):
        found = f"{width} x {height}"
        message = f"`{picture.path}` is {found} pixels, not {picture.width} x {picture.height}"
        raise TrainingError(message, hint="pictures and annotations of one data set")
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))


def read_sample(picture: CocoPicture, *, is_flipped: bool) -> Sample:
    """Read picture, boxes, labels and masks; mirrored left to right where told to."""
    image, masks = read_image(picture), draw_masks(picture)
    boxes = torch.tensor([each.box for each in picture.objects], dtype=torch.float32).view(-1, 4)
    if is_flipped:
        # By NumPy: each of these threads would start PyTorch threads of its own.
        image = torch.from_numpy(np.ascontiguousarray(image.numpy()[:, :, ::-1]))
        masks = np.ascontiguousarray(masks[:, :, ::-1])
        boxes[:, [0, 2]] = picture.width - boxes[:, [2, 0]]
    labels = torch.tensor([each.label for each in picture.objects], dtype=torch.int64)
    target = {"boxes": boxes, "labels": labels, "masks": torch.from_numpy(masks)}
    return Sample(number=picture.id, image=image, target=target)


def draw_masks(picture: CocoPicture) -> Masks:
    """Give N x H x W bytes of 0 and 1; raises TrainingError for an outline that is none."""
    if len(picture.objects) * picture.height * picture.width > MOST_MASK_BYTES:
        message = (
            f"the {len(picture.objects)} objects of `{picture.path}` are too many for its size"
        )
        raise TrainingError(message, hint="make the picture smaller, or leave objects out")
    masks = np.zeros((len(picture.objects), picture.height, picture.width), dtype=np.uint8)
    for number, each in enumerate(picture.objects):
        try:
            masks[number] = run_lengths.decode(encode_outline(each, picture))
        except UNUSABLE as error:
            raise _bad_outline(each, picture, error) from None
    return masks


def encode_outline(each: CocoObject, picture: CocoPicture) -> dict[str, Any]:
    """Encode the object's outline as pycocotools' compressed run-length code.

    Raises TrainingError for an outline that is none.
    """
    try:
        return _code(each, picture)
    except UNUSABLE as error:
        raise _bad_outline(each, picture, error) from None


def _bad_outline(each: CocoObject, picture: CocoPicture, error: Exception) -> TrainingError:
    message = f"annotation {each.annotation} of {picture.path.name} has a bad outline: {error}"
    return TrainingError(message, hint="polygons, or {size, counts} of this picture")


def _code(each: CocoObject, picture: CocoPicture) -> dict[str, Any]:
    outline, height, width = each.outline, picture.height, picture.width
    if isinstance(outline, Sequence):
        polygons = [polygon.tolist() for polygon in outline]
        return run_lengths.merge(run_lengths.frPyObjects(polygons, height, width))
    if isinstance(outline["counts"], list):
        return run_lengths.frPyObjects(dict(outline), height, width)
    return dict(outline)


class Reader:
    """Threads that read ahead; leaving its `with` block ends them, whatever they have begun.

    Tensors are pinned there where `device` is a GPU.
    """

    def __init__(self, num_threads: int, device: torch.device) -> None:
        self._pool = ThreadPoolExecutor(num_threads, thread_name_prefix="coco")
        self._device = device

    def batches(self, batches: Iterable[Sequence[Callable[[], R]]]) -> Iterator[list[R]]:
        """Give what each batch's readers give, in order; some batches are read ahead."""
        begun: deque[list[Future[R]]] = deque()
        for batch in batches:
            begun.append([self._pool.submit(self._read, read) for read in batch])
            if len(begun) > NUM_AHEAD:
                yield [each.result() for each in begun.popleft()]
        while begun:
            yield [each.result() for each in begun.popleft()]

    def _read(self, read: Callable[[], R]) -> R:
        return each_tensor(read(), lambda tensor: pin(tensor, self._device))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
