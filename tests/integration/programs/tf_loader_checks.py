"""What test_loader_tf.py asks of TensorFlow's loader; run by the runtime.

python tf_loader_checks.py FOLDER PACKED     prints what it found as JSON
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.fakes.hostile_pictures import hostile_pictures
from trainer.common.errors import TrainingError
from trainer.common.sharding import shuffled_batches
from trainer.data.pictures import read_ahead
from trainer.data.pictures.crops import Crop, center_crop, picture_rng, random_crop
from trainer.data.pictures.splits import open_pictures
from trainer.tf.loader import Loader

SIZE = 32


def crop_of(index: int, width: int, height: int) -> Crop:
    return random_crop(width, height, picture_rng(1, 2, index))


def digest(batches: Sequence[np.ndarray]) -> str:
    return hashlib.sha256(b"".join(images.tobytes() for images in batches)).hexdigest()


def batches(folder: Path) -> object:
    pictures = open_pictures(folder, "train")
    order = [[3, 20, 2], [], [1, 14]]
    runs = [
        list(Loader(pictures, size=SIZE, num_workers=number).batches(order, crop_of))
        for number in (1, 4)
    ]
    return {
        "samples": [[*batch.samples] for batch in runs[0]],
        "labels": [batch.labels.tolist() for batch in runs[0]],
        "shapes": [[*batch.images.shape] for batch in runs[0]],
        "digests": [digest([np.asarray(each.images) for each in run]) for run in runs],
        "pixels": b"".join(np.asarray(each.images).tobytes() for each in runs[0]).hex(),
    }


def epoch(folder: Path) -> object:
    """The pictures of an epoch from its first batch and from its third on, by TFRecord's places."""
    pictures = open_pictures(folder, "train")
    loader = Loader(pictures, size=SIZE, num_workers=2)
    found = []
    for first in (0, 2):
        order = shuffled_batches(
            *(len(pictures.labels), 4),
            seed=1,
            epoch=1,
            shard_sizes=pictures.shard_sizes,
            first=first,
        )
        found.append([np.asarray(batch.images) for batch in loader.batches(order, crop_of)])
    return [digest(found[0][2:]), digest(found[1]), len(found[0]), len(pictures.shard_sizes)]


def formats(folder: Path) -> object:
    """The middle pixel of an orange picture in every format that a data set may hold."""
    orange = Image.new("RGB", (40, 40), (200, 100, 50))
    kinds = [("RGB", "JPEG"), ("L", "JPEG"), ("CMYK", "JPEG"), ("RGB", "PNG"), ("RGBA", "PNG")]
    (folder / "train" / "a").mkdir(parents=True)
    for number, (mode, kind) in enumerate(kinds):
        orange.convert(mode).save(folder / "train" / "a" / f"{number}.jpg", kind)
    loader = Loader(open_pictures(folder, "train"), size=SIZE, num_workers=2)
    (batch,) = loader.batches([range(len(kinds))], lambda _, *size: center_crop(*size))
    return [image[5, 5].tolist() for image in np.asarray(batch.images)]


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
        loader = Loader(open_pictures(folder, "train"), size=SIZE, num_workers=2)
        given = loader.batches([[0], [0, 1], [0]], lambda _, *size: center_crop(*size))
        next(given)
        try:
            next(given)
        except TrainingError as error:
            said[name] = str(error).replace(str(folder), "DIR")
    return said


def leave(folder: Path) -> None:
    """End with batches on their way, held by a circle as an error's traceback makes them."""
    read_ahead.NUM_ANNOUNCED = 1

    def slow_order() -> Iterator[Sequence[int]]:
        for index in range(24):
            time.sleep(0.2)
            yield [index]

    loader = Loader(open_pictures(folder, "train"), size=SIZE, num_workers=2)
    circle: list[Any] = [loader.batches(slow_order(), lambda _, *size: center_crop(*size))]
    circle.append(circle)
    next(circle[0])


if __name__ == "__main__":
    folder, packed = Path(sys.argv[1]), Path(sys.argv[2])
    results = {
        "batches": batches(folder),
        "epoch": epoch(packed),
        "formats": formats(folder.parent / "formats"),
        "broken": broken(folder.parent / "broken"),
    }
    leave(folder)
    print(json.dumps(results))
