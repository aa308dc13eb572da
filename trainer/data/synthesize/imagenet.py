"""Makes a folder of JPEGs of ImageNet's layout and sizes, to try everything with before it is there.

    python -m trainer.data.synthesize imagenet --images 5000 --classes 10 --to data/like-imagenet
    launch data synthesize imagenet --images 5000 --to data/like-imagenet

    DIR/train/<class>/<class>_<number>.JPEG     DIR/val/<class>/ILSVRC2012_val_<number>.JPEG

About 110 kB each, most of 500 x 375 pixels, some upright, some small, a few large. A class is a
colour and a direction of stripes under noise of three scales, so it can be learnt. As in ImageNet
some are grey (one in 50), a few CMYK (the sixth of every 1,000) and PNGs under a JPEG's name (the
eighth of every 1,500). Equal arguments give equal files where Pillow is of the same version.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainer.common.errors import TrainingError
from trainer.common.whole_file import write_whole
from trainer.data.disk.durability import boot_id
from trainer.data.disk.events import Events
from trainer.data.disk.partial_folder import PartialFolder, is_free
from trainer.data.disk.workers import num_cores, run_tasks
from trainer.data.synthesize.stripes import ABOUT, Scene, draw_stripes

if TYPE_CHECKING:
    from PIL.Image import Image

JPEG_QUALITY = 90
GREY_EVERY, CMYK_EVERY, PNG_EVERY = 50, 1000, 1500
# ImageNet has 50,000 for 1,281,167.
TRAIN_PER_VAL = 25
# Another number for other pictures of the same arguments.
_VERSION = 1
_CHUNK = 16
_IMAGES_WORTH_A_PROCESS = 64
_MEAN_BYTES = 110_000
_INTERRUPTED = 130
# Cumulative share of pictures, and their width and height; the rest is small or large.
_SIZES = ((0.55, 500, 375), (0.67, 500, 333), (0.82, 375, 500), (0.87, 333, 500))
_SMALL_SHARE = 0.98


@dataclass(frozen=True, kw_only=True)
class ImageSet:
    """The number of pictures and classes to make, and the seed."""

    num_train: int
    num_classes: int
    seed: int

    @property
    def num_val(self) -> int:
        """The number of pictures for validation: at least one a class."""
        return max(self.num_classes, self.num_train // TRAIN_PER_VAL)

    def path(self, split: str, number: int) -> str:
        """Give a picture's place below the folder."""
        name = f"n{number % self.num_classes + 1:08}"
        file = f"{name}_{number}" if split == "train" else f"ILSVRC2012_val_{number + 1:08}"
        return f"{split}/{name}/{file}.JPEG"


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Some pictures that one process makes in a row."""

    folder: Path
    images: ImageSet
    split: str
    numbers: range


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; gives its exit code."""
    parser = argparse.ArgumentParser(prog="python -m trainer.data.synthesize", allow_abbrev=False)
    parser.add_argument("dataset", choices=["imagenet"])
    parser.add_argument("--to", type=Path, required=True, metavar="DIR")
    parser.add_argument("--images", type=int, required=True, metavar="N", help="for training")
    parser.add_argument("--classes", type=int, default=1000, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--json", action="store_true", help="print events as JSON lines")
    given = parser.parse_args(argv)
    images = ImageSet(num_train=given.images, num_classes=given.classes, seed=given.seed)
    try:
        make_images(given.to, images, Events(as_json=given.json))
    except TrainingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("error: interrupted (hint: type the same again to continue)", file=sys.stderr)
        return _INTERRUPTED
    return 0


def make_images(folder: Path, images: ImageSet, events: Events) -> None:
    """Write the pictures, whole or not at all; those of an interrupted program stay.

    Raises TrainingError where something else is in the folder, or the disk is full.
    """
    if not 1 <= images.num_classes <= images.num_train:
        message = f"{images.num_train} images of {images.num_classes} classes: some would have none"
        raise TrainingError(message, hint=f"--classes {min(10, max(1, images.num_train))}")
    folder = folder.absolute()
    about = {
        "version": _VERSION,
        "kind": "imagenet",
        "images": images.num_train,
        "classes": images.num_classes,
        "seed": images.seed,
    }
    is_there = _is_there(folder, about)
    if not is_there:
        with PartialFolder(folder) as partial:
            _make_in(partial, images, about, events)
    counts = f"{images.num_train} training and {images.num_val} validation pictures"
    text = f"{counts} in {folder}" + (" (there already)" if is_there else "")
    events.tell(
        "done",
        text,
        folder=str(folder),
        samples={"train": images.num_train, "val": images.num_val},
        changed=not is_there,
    )


def _is_there(folder: Path, about: dict[str, object]) -> bool:
    if is_free(folder):
        return False
    try:
        found = json.loads((folder / ABOUT).read_bytes())
    except (OSError, ValueError):
        found = None
    if found != about:
        message = f"`{folder}` holds something else than this set of pictures"
        raise TrainingError(message, hint="a new folder, or the same arguments")
    PartialFolder(folder).forget_finished()
    return True


def _make_in(
    partial: PartialFolder, images: ImageSet, about: dict[str, object], events: Events
) -> None:
    begun = partial.state / ABOUT
    encoded = json.dumps(about).encode() + b"\n"
    # A file that is there is whole, unless the machine went down since it was written.
    state = encoded + str(boot_id()).encode()
    if not begun.is_file() or begun.read_bytes() != state:
        partial.empty()
        write_whole(begun, state)
    total = images.num_train + images.num_val
    partial.require_room(total * _MEAN_BYTES)
    for label in range(images.num_classes):
        for split in ("train", "val"):
            (partial.data / images.path(split, label)).parent.mkdir(parents=True, exist_ok=True)
    num_workers = min(num_cores(), 1 + total // _IMAGES_WORTH_A_PROCESS)
    files_done = bytes_done = 0
    chunks = _chunks(partial.data, images)
    with contextlib.closing(run_tasks(make_chunk, chunks, num_workers=num_workers)) as results:
        for num_files, num_bytes in results:
            files_done += num_files
            bytes_done += num_bytes
            events.progress("making", files_done=files_done, bytes_done=bytes_done, files=total)
    write_whole(partial.data / ABOUT, encoded)
    partial.finish()


def _chunks(folder: Path, images: ImageSet) -> Iterator[Chunk]:
    for split, num_images in (("train", images.num_train), ("val", images.num_val)):
        for first in range(0, num_images, _CHUNK):
            numbers = range(first, min(first + _CHUNK, num_images))
            yield Chunk(folder=folder, images=images, split=split, numbers=numbers)


def make_chunk(chunk: Chunk) -> tuple[int, int]:
    """Write the pictures that are not there yet; gives how many there are now, and their bytes."""
    num_bytes = 0
    for number in chunk.numbers:
        path = chunk.folder / chunk.images.path(chunk.split, number)
        if path.exists():
            num_bytes += path.stat().st_size
            continue
        data = make_image(chunk.images, chunk.split, number)
        write_whole(path, data)
        num_bytes += len(data)
    return len(chunk.numbers), num_bytes


# --- one picture -------------------------------------------------------------------------------


def make_image(images: ImageSet, split: str, number: int) -> bytes:
    """Draw and encode a picture; it depends on the seed, the split and its number alone."""
    from PIL import Image, ImageDraw

    rng = random.Random(f"{images.seed}/{split}/{number}")
    width, height = _choose_size(rng)
    picture = Image.new("RGB", (width, height))
    scene = Scene(
        rng=rng,
        label=number % images.num_classes,
        num_classes=images.num_classes,
        width=width,
        height=height,
    )
    draw_stripes(ImageDraw.Draw(picture), scene)
    for pixels_a_grain, strength in ((32, 0.35), (5, 0.2)):
        picture = Image.blend(picture, _noise(rng, width, height, pixels_a_grain), strength)
    # The finest grain makes most of a JPEG's bytes; its strength is what sizes differ by.
    strength = min(0.5, 0.2 * rng.lognormvariate(0.0, 0.55))
    picture = Image.blend(picture, _noise(rng, width, height, 1), strength)
    return _encode(picture, number)


def _choose_size(rng: random.Random) -> tuple[int, int]:
    share = rng.random()
    for upto, width, height in _SIZES:
        if share < upto:
            return width, height
    if share < _SMALL_SHARE:
        return rng.randint(120, 640), rng.randint(120, 640)
    width = rng.randint(800, 1600)
    return width, width * 3 // 4


def _noise(rng: random.Random, width: int, height: int, pixels_a_grain: int) -> Image:
    """Draw grains of random colours; grains of one pixel are grey, which costs a third."""
    from PIL import Image

    if pixels_a_grain == 1:
        return Image.frombytes("L", (width, height), rng.randbytes(width * height)).convert("RGB")
    size = max(2, width // pixels_a_grain), max(2, height // pixels_a_grain)
    grains = Image.frombytes("RGB", size, rng.randbytes(3 * size[0] * size[1]))
    return grains.resize((width, height))


def _encode(picture: Image, number: int) -> bytes:
    buffer = io.BytesIO()
    if number % PNG_EVERY == 7:
        picture.save(buffer, "PNG", compress_level=1)
        return buffer.getvalue()
    if number % CMYK_EVERY == 5:
        picture = picture.convert("CMYK")
    elif number % GREY_EVERY == 3:
        picture = picture.convert("L")
    picture.save(buffer, "JPEG", quality=JPEG_QUALITY)
    return buffer.getvalue()
