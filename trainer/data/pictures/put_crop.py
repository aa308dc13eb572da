"""Decodes one picture, and writes the part of it that is to be seen; alike for every framework."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainer.data.pictures.crops import Crop
from trainer.data.pictures.decoding_parts import Encoded, Pixels
from trainer.data.pictures.jpeg_crop import DecoderName, open_cropper

if TYPE_CHECKING:
    from trainer.data.pictures.splits import Pictures

# Gives the part to see of picture `index`, which is so wide and high; picklable.
CropOf = Callable[[int, int, int], Crop]
# Decodes a file by a framework's libraries: its bytes and name; the part to see by width and height.
PutByLibrary = Callable[[Pixels, bytes, str, Callable[[int, int], Crop]], None]

our_cropper = functools.cache(open_cropper)


@dataclass(frozen=True, kw_only=True)
class PutCrop:
    """Decodes a picture, cuts its crop out, and writes it to side x side x 3 bytes."""

    decoder: DecoderName
    crop_of: CropOf
    by_library: PutByLibrary

    def __call__(self, target: Pixels, file: Encoded) -> None:
        """Raise CorruptPicture for what is no whole picture, and TrainingError for what cannot be read."""
        data, of_size = file.read(), functools.partial(self.crop_of, file.number)
        if self.decoder == "fast":
            address = target.ctypes.data
            if our_cropper().put(data, of_size, side=len(target), address=address):
                return
        self.by_library(target, data, file.name, of_size)


def encoded(pictures: Pictures, samples: Iterable[int]) -> Iterator[Encoded]:
    """Give the files of these pictures: where they lie, or read if no other process can read them.

    Raises TrainingError where one cannot be read.
    """
    for index in samples:
        file = pictures.file_range(index) or pictures.read(index)
        yield Encoded(index, pictures.name(index), file)
