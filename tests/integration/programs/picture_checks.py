"""What test_loader.py and the tests of the picture programs ask of PyTorch; run in the zygote.

main(["check", FOLDER, CHECK, ...])        prints what it found as JSON
main(["evaluate", MODULE, ...])            in a rank: what each picture's evaluation was
main(["train", MODULE, ...])               in a rank: the program itself
"""

from __future__ import annotations

import importlib
import io
import json
import math
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from urllib.parse import urlsplit

import numpy as np
import simplejpeg
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import RandomResizedCrop
from torchvision.transforms.v2 import functional as reference

from tests.fakes.hostile_pictures import damaged_pngs, deep_png, hostile_pictures
from trainer.common.errors import TrainingError
from trainer.common.position import Position
from trainer.data.pictures.corrupt import CorruptPictures
from trainer.data.pictures.crops import center_crop, epoch_crop, picture_rng, random_crop
from trainer.data.pictures.decoding_processes import MOST_THREADS
from trainer.data.pictures.header import CorruptPicture
from trainer.data.pictures.splits import Pictures, open_pictures
from trainer.pytorch.decoding import DecodingWorkers, decode
from trainer.pytorch.loader import Loader
from trainer.pytorch.rand_augment import augment_of

NUM_CROPS = 4_000
PERCENTILES = (1, 10, 25, 50, 75, 90, 99)


def crops(_folder: Path) -> object:
    """Percentiles of left, top, area and aspect of our crops and of torchvision's, by size."""
    torch.manual_seed(1)
    found = {}
    for width, height in ((500, 375), (64, 200), (300, 40)):
        canvas = torch.empty(3, height, width, dtype=torch.uint8)
        theirs = [
            RandomResizedCrop.get_params(canvas, (0.08, 1.0), (3 / 4, 4 / 3))
            for _ in range(NUM_CROPS)
        ]
        ours = [random_crop(width, height, picture_rng(1, 1, each)) for each in range(NUM_CROPS)]
        rows = {
            "torchvision": [(left, top, w, h) for top, left, h, w in theirs],
            "ours": [(crop.left, crop.top, crop.width, crop.height) for crop in ours],
        }
        found[f"{width}x{height}"] = {
            name: figures(boxes, width, height) for name, boxes in rows.items()
        }
    return found


def figures(boxes: Sequence[Sequence[int]], width: int, height: int) -> dict[str, list[float]]:
    columns = {
        "left": [left / width for left, _, _, _ in boxes],
        "top": [top / height for _, top, _, _ in boxes],
        "area": [w * h / (width * height) for _, _, w, h in boxes],
        "aspect": [math.log(w / h) for _, _, w, h in boxes],
    }
    return {
        name: [sorted(values)[len(values) * each // 100] for each in PERCENTILES]
        for name, values in columns.items()
    }


def batches(folder: Path) -> object:
    """How far the loader's pixels are from Pillow's decoder and torchvision's resizing."""
    pictures = open_pictures(folder, "train")
    order = [[3, 0, 2], [], [1, 4]]
    crop_of = partial(epoch_crop, 1, 2)
    torch.set_num_threads(2)
    runs = []
    for num_workers in (1, MOST_THREADS, MOST_THREADS + 1):
        workers = DecodingWorkers(num_workers)
        loader = Loader(pictures, torch.device("cpu"), size=32, workers=workers)
        runs.append(list(loader.batches(order, crop_of)))
    worst = 0
    for batch in runs[0]:
        for image, index in zip(batch.images, batch.samples, strict=True):
            whole = Image.open(io.BytesIO(pictures.read(index))).convert("RGB")
            crop = crop_of(index, *whole.size)
            part = reference.resized_crop(
                *(reference.pil_to_tensor(whole), crop.top, crop.left, crop.height, crop.width),
                size=[32, 32],
                antialias=True,
            )
            part = part.flip(-1) if crop.is_flipped else part
            worst = max(worst, (image.int() - part.int()).abs().max().item())
    alone, *together = runs
    return {
        "samples": [[*batch.samples] for batch in alone],
        "labels": [batch.labels.tolist() for batch in alone],
        "shapes": [[*batch.images.shape] for batch in alone],
        "is_channels_last": alone[0].images.is_contiguous(memory_format=torch.channels_last),
        "worst_difference": worst,
        "workers_change_nothing": [
            all(
                torch.equal(one.images, other.images)
                for one, other in zip(alone, more, strict=True)
            )
            for more in together
        ],
        "num_threads_after": torch.get_num_threads(),
        "threads_of_workers": threads_of_workers(),
        "counts_its_pictures": 1 < (workers.decoded_per_core_per_s or 0) < 1e6,
    }


def decoders(folder: Path) -> object:
    """Whether our cropper's batches are the library's, to the bit, however many decode; plain and augmented."""
    pictures = open_pictures(folder, "train")
    order = [range(len(pictures.labels))]
    found: dict[bool, list[Tensor]] = {False: [], True: []}
    for decoder in ("library", "fast"):
        for num_workers in (2, MOST_THREADS + 1):
            loader = Loader(
                pictures,
                torch.device("cpu"),
                size=32,
                workers=DecodingWorkers(num_workers),
                decoder=decoder,
            )
            for is_augmented, images in found.items():
                augment = partial(augment_of, "1/2", 6.0) if is_augmented else None
                images.extend(
                    each.images
                    for each in loader.batches(order, partial(epoch_crop, 1, 2), augment)
                )
    plain, augmented = found[False][0], found[True][0]
    return {
        "plain": [torch.equal(plain, each) for each in found[False]],
        "augmented": [torch.equal(augmented, each) for each in found[True]],
        "augments": not torch.equal(plain, augmented),
    }


def corrupt(folder: Path) -> object:
    """What becomes of batches with a picture that is cut off, the first one of the folder."""
    pictures = open_pictures(folder, "train")
    first = pictures.read(0)
    damaged = SimpleNamespace(
        labels=pictures.labels,
        announce=pictures.announce,
        file_range=lambda _: None,
        name=lambda index: f"picture {index}",
        read=lambda index: first[: len(first) // 2] if index in (0, 1) else pictures.read(index),
    )

    def samples_of(
        order: list[list[int]], most: int, *, is_filled: bool, num_workers: int = 2
    ) -> object:
        counted = CorruptPictures(most)
        loader = Loader(
            cast("Pictures", damaged),
            torch.device("cpu"),
            size=32,
            workers=DecodingWorkers(num_workers),
            corrupt=counted,
            is_filled=is_filled,
        )
        said, sys.stderr = sys.stderr, io.StringIO()
        try:
            batches = [*loader.batches(order, center_crop)]
            shapes = {(len(each.images), len(each.labels)) for each in batches}
            assert shapes == {(len(each.samples), len(each.samples)) for each in batches}
            samples = [[*each.samples] for each in batches]
            return [samples, counted.num_skipped, sys.stderr.getvalue()]
        except TrainingError as error:
            return str(error)
        finally:
            sys.stderr = said

    return {
        "filled": samples_of([[2, 0, 3], [0, 4]], 1, is_filled=True),
        "filled by processes": samples_of(
            [[2, 0, 3], [0, 4]], 1, is_filled=True, num_workers=MOST_THREADS + 1
        ),
        "left out": samples_of([[2, 0, 3], [0]], 1, is_filled=False),
        "one too many": samples_of([[2, 0, 3], [4, 1]], 1, is_filled=True),
        "none allowed": samples_of([[2, 0, 3]], 0, is_filled=True),
        "all": samples_of([[0, 1]], 9, is_filled=True),
    }


def threads_of_workers() -> int:
    """How many threads tensor operations use on a decoding thread."""
    found: list[int] = []
    DecodingWorkers(1).start(lambda: found.append(torch.get_num_threads())).result()
    return found[0]


def formats(_folder: Path) -> object:
    """The middle pixel of an orange picture in every format that a data set may hold."""
    found = {}
    orange = Image.new("RGB", (20, 10), (200, 100, 50))
    for mode, kind in (
        *(("RGB", "JPEG"), ("L", "JPEG"), ("CMYK", "JPEG")),
        *(("RGB", "PNG"), ("P", "PNG"), ("RGBA", "PNG"), ("LA", "PNG")),
    ):
        buffer = io.BytesIO()
        orange.convert(mode).save(buffer, kind)
        picture = decode(buffer.getvalue(), lambda: "orange")
        found[f"{mode} {kind}"] = [[*picture.shape], picture[5, 5].tolist()]
    buffer = io.BytesIO()
    Image.effect_noise((90, 60), 50).save(buffer, "JPEG", restart_marker_rows=1)
    clean = buffer.getvalue()
    # libjpeg-turbo warns of bytes in front of a restart marker.
    at = clean.index(b"\xff\xd0")
    stray = clean[:at] + bytes(7) + clean[at:]
    warned = False
    try:
        simplejpeg.decode_jpeg(stray)
    except ValueError:
        warned = True
    same = np.array_equal(*(decode(each, lambda: "noise") for each in (clean, stray)))
    return {"formats": found, "stray": [warned, same]}


def broken(_folder: Path) -> object:
    """What is said of files that are no whole pictures."""
    buffer = io.BytesIO()
    Image.effect_noise((200, 200), 50).save(buffer, "JPEG")
    whole = buffer.getvalue()
    deep = io.BytesIO()
    Image.new("I;16", (20, 10), 30_000).save(deep, "PNG")
    files = {
        "empty": b"",
        "text": b"<html>not found</html>",
        "cut": whole[: len(whole) // 2],
        "header": whole[:100],
        "deep": deep.getvalue(),
        "deep colours": deep_png(),
        **damaged_pngs(),
        **hostile_pictures(),
    }
    said = {}
    for name, data in files.items():
        try:
            decode(data, lambda: "DIR/x.jpg")
        except CorruptPicture as error:
            said[name] = str(error)
    return said


def evaluate(argv: Sequence[str]) -> int:
    """Evaluate once, untrained; each rank writes which pictures it saw and what came out."""
    from trainer.common.options import parse_options
    from trainer.pytorch import classifier
    from trainer.pytorch.program import run_program
    from trainer.pytorch.strategy import Ranks

    options = parse_options(classifier.Options, argv)

    def check(ranks: Ranks) -> None:
        task = classifier.Classifier(options, ranks, "evaluation")
        task.prepare()
        torch.manual_seed(options.seed)
        seen: list[int] = []
        begin = task.data.val._begin
        task.data.val._begin = lambda samples, *more: (
            seen.extend(samples),
            begin(samples, *more),
        )[1]
        found = task.evaluate(task.build().eval(), NO_GUARD, Position())
        text = json.dumps({"seen": seen, "found": found})
        Path(f"evaluated-{ranks.world.rank}.json").write_text(text)

    return run_program(options, check)


class _NoGuard:
    def check(self, _position: Position) -> None:
        """Nothing to agree on."""

    def settle(self) -> None:
        """Nothing to agree on."""


NO_GUARD = _NoGuard()


def main(argv: Sequence[str]) -> int:
    """What a rank runs; its meeting place goes to the environment, where torchrun has it."""
    rest = [*argv]
    if "--dist-url" in rest:
        place = rest.index("--dist-url")
        url = urlsplit(rest[place + 1])
        del rest[place : place + 2]
        os.environ.update(MASTER_ADDR=str(url.hostname), MASTER_PORT=str(url.port))
    what, *rest = rest
    if what == "evaluate":
        return evaluate(rest)
    if what == "check":
        checks = {each.__name__: each for each in CHECKS}
        print(json.dumps({name: checks[name](Path(rest[0])) for name in rest[1:]}))
        return 0
    module, *rest = rest
    assert what == "train"
    return importlib.import_module(module).main(rest)


CHECKS = (crops, batches, decoders, formats, broken, corrupt)
