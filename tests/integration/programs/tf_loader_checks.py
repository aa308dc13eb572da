"""What test_loader_tf.py asks of TensorFlow's loader; run in the zygote.

main([FOLDER, PACKED])     prints what it found as JSON
"""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.fakes.hostile_pictures import hostile_pictures
from trainer.common.errors import TrainingError
from trainer.common.sharding import shuffled_batches
from trainer.data.pictures import read_ahead
from trainer.data.pictures.corrupt import CorruptPictures
from trainer.data.pictures.crops import center_crop, epoch_crop
from trainer.data.pictures.splits import Pictures, open_pictures
from trainer.tf.decoding import decoding_of_batches
from trainer.tf.loader import CropOf, Loader, Noise, ahead_on

SIZE = 32
# As torch_batches.py crops.
crop_of = partial(epoch_crop, 1, 2)


def digest(batches: Sequence[np.ndarray]) -> str:
    return hashlib.sha256(b"".join(images.tobytes() for images in batches)).hexdigest()


def read(
    pictures: Pictures,
    order: Iterable[Sequence[int]],
    crop: CropOf = crop_of,
    *,
    batch: int = 3,
    num_workers: int = 2,
    **options: Any,
) -> list[tuple[np.ndarray, np.ndarray, list[int]]]:
    """Images, labels and pictures of all these batches."""
    known = [*order]
    loader = Loader(
        pictures, batch=batch, size=SIZE, decoding=decoding_of_batches(num_workers), **options
    )
    with loader.read(known, crop) as reading:
        return [
            (images.numpy(), labels.numpy(), [*reading.take()])
            for _, (images, labels) in zip(known, reading.dataset, strict=False)
        ]


def batches(folder: Path) -> object:
    pictures = open_pictures(folder, "train")
    order = [[3, 20, 2], [], [1, 14]]
    runs = [read(pictures, order, num_workers=number) for number in (1, 4, 5)]
    fast = read(pictures, order, decoder="fast")
    return {
        "samples": [samples for _, _, samples in runs[0]],
        "labels": [labels.tolist() for _, labels, _ in runs[0]],
        "shapes": [[*images.shape] for images, _, _ in runs[0]],
        "digests": [digest([images for images, _, _ in run]) for run in runs],
        "pixels": [
            b"".join(images[: len(samples)].tobytes() for images, _, samples in run).hex()
            for run in (runs[0], fast)
        ],
    }


def epoch(folder: Path) -> object:
    """The pictures of an epoch from its first batch and from its third on, by TFRecord's places."""
    pictures = open_pictures(folder, "train")
    found = []
    for first in (0, 2):
        order = shuffled_batches(
            *(len(pictures.labels), 4),
            seed=1,
            epoch=1,
            shard_sizes=pictures.shard_sizes,
            first=first,
        )
        found.append([images for images, _, _ in read(pictures, order, batch=4)])
    return [digest(found[0][2:]), digest(found[1]), len(found[0]), len(pictures.shard_sizes)]


def corrupt(folder: Path) -> object:
    """A corrupt picture is left out of an evaluation, and another stands in its place in training."""
    (folder / "train" / "a").mkdir(parents=True)
    for number in range(4):
        grey = Image.new("RGB", (40, 40), (60 * number, 0, 0))
        grey.save(folder / "train" / "a" / f"{number}.png")
    (folder / "train" / "a" / "1.png").write_bytes(b"<html>")
    pictures = open_pictures(folder, "train")
    order, limit = [[0, 1, 3], [1, 2]], CorruptPictures(1)
    found = {}
    for name, is_filled in (("evaluated", False), ("trained", True)):
        given = read(
            pictures,
            order,
            center_crop,
            corrupt=limit,
            is_filled=is_filled,
        )
        found[name] = [
            [samples, labels.tolist(), images[:, 5, 5, 0].tolist()]
            for images, labels, samples in given
        ]
    (folder / "train" / "a" / "2.png").write_bytes(b"<html>")
    try:
        read(pictures, order, corrupt=limit)
    except TrainingError as error:
        found["beyond"] = str(error).replace(str(folder), "DIR")
    return {**found, "num_skipped": limit.num_skipped}


def formats(folder: Path) -> object:
    """The middle pixel of an orange picture in every format that a data set may hold."""
    orange = Image.new("RGB", (40, 40), (200, 100, 50))
    kinds = [("RGB", "JPEG"), ("L", "JPEG"), ("CMYK", "JPEG"), ("RGB", "PNG"), ("RGBA", "PNG")]
    (folder / "train" / "a").mkdir(parents=True)
    for number, (mode, kind) in enumerate(kinds):
        orange.convert(mode).save(folder / "train" / "a" / f"{number}.jpg", kind)
    ((images, _, _),) = read(
        open_pictures(folder, "train"),
        [range(len(kinds))],
        center_crop,
        batch=len(kinds),
    )
    return [image[5, 5].tolist() for image in images]


def broken(folder: Path) -> object:
    """What is said of files that are no whole pictures, in the second batch."""
    buffer = io.BytesIO()
    Image.effect_noise((200, 200), 50).save(buffer, "JPEG")
    whole = buffer.getvalue()
    torn = {"empty": b"", "text": b"<html>", "cut": whole[: len(whole) // 2], "head": whole[:100]}
    torn |= hostile_pictures()
    (folder / "train" / "a").mkdir(parents=True)
    (folder / "train" / "a" / "0.jpg").write_bytes(whole)
    said = {}
    for name, data in torn.items():
        (folder / "train" / "a" / "1.jpg").write_bytes(data)
        pictures = open_pictures(folder, "train")
        read(pictures, [[0]])
        try:
            read(pictures, [[0], [0, 1], [0]], center_crop)
        except TrainingError as error:
            said[name] = str(error).replace(str(folder), "DIR")
    return said


def tuned(folder: Path) -> object:
    """Whether tf.data tunes what is iterated over, of pictures, also ahead on a device, and of noise."""
    loader = Loader(
        open_pictures(folder, "train"), batch=1, size=SIZE, decoding=decoding_of_batches(2)
    )
    noise = Noise(num_classes=2, batch=1, size=SIZE, seed=1)
    found = {}
    for name, source in (("pictures", loader), ("noise", noise)):
        with source.read([[0]], center_crop) as reading:
            found[name] = reading.dataset.options().autotune.enabled
            ahead = ahead_on("/cpu:0", reading.dataset)
            found[f"{name} ahead"] = ahead.options().autotune.enabled
            next(iter(ahead))
    return found


def leave(folder: Path) -> None:
    """End by an error with batches on their way, which the error's traceback holds in a circle."""
    read_ahead.NUM_ANNOUNCED = 1

    def slow_order() -> Iterator[Sequence[int]]:
        for index in range(24):
            time.sleep(0.2)
            yield [index]

    loader = Loader(
        open_pictures(folder, "train"), batch=1, size=SIZE, decoding=decoding_of_batches(2)
    )
    circle: list[Any] = []
    try:
        with loader.read(slow_order(), center_crop) as reading:
            circle += [circle, iter(reading.dataset)]
            next(circle[1])
            raise InterruptedError
    except InterruptedError as error:
        circle.append(error)


def main(argv: Sequence[str]) -> None:
    """Look at all, then leave in the middle."""
    folder, packed = map(Path, argv)
    results = {
        "batches": batches(folder),
        "epoch": epoch(packed),
        "formats": formats(folder.parent / "formats"),
        "broken": broken(folder.parent / "broken"),
        "corrupt": corrupt(folder.parent / "corrupt"),
        "tuned": tuned(folder),
    }
    leave(folder)
    print(json.dumps(results))
