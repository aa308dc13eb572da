"""Selects the files of the archives of COCO, ants and bees, and MNIST, and their places.

    train2017.zip val2017.zip annotations_trainval2017.zip
    -> train2017/*.jpg, val2017/*.jpg, annotations/instances_*.json
    hymenoptera_data.zip -> train/ants/*.jpg, train/bees/*.jpg, val/...
    train-images-idx3-ubyte.gz, ... -> train-images-idx3-ubyte, ...
    mnist.npz -> datasets/mnist.npz

Captions and keypoints of COCO are left out, no trainer here reads them; of the ants and bees a
`.gif` that says a picture was not found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trainer.common.errors import TrainingError
from trainer.data.archives.file import GET_AGAIN, ArchiveFile, Inflated
from trainer.data.archives.tar import Member
from trainer.data.archives.zip import member_path, read_directory, zip_members
from trainer.data.pictures.idx import MOST_BYTES

_PICTURE = r"[^/.][^/]*\.(?i:jpg|jpeg|png)"
_COCO = re.compile(rf"((?:train|val)2017/{_PICTURE}|annotations/instances_(?:train|val)2017\.json)")
_HYMENOPTERA = re.compile(rf"hymenoptera_data/((?:train|val)/(?:ants|bees)/{_PICTURE})")


@dataclass(frozen=True, kw_only=True)
class Contents:
    """A reader of an archive's files that belong to a data set, and their bytes unpacked."""

    files: Callable[[ArchiveFile], Iterator[Member]]
    unpacked_bytes: int


def coco_files(path: Path) -> Contents:
    """Look into one of COCO's archives; raises TrainingError where it is unsafe."""
    return _zip_files(path, _COCO)


def hymenoptera_files(path: Path) -> Contents:
    """Look into the ants and bees' archive; raises TrainingError where it is unsafe."""
    return _zip_files(path, _HYMENOPTERA)


def mnist_files(path: Path) -> Contents:
    """Describe the content of one of MNIST's gzip files."""
    name = path.name.removesuffix(".gz")

    def files(source: ArchiveFile) -> Iterator[Member]:
        # Small enough to be held: how large it is shows only at its end.
        content = b"".join(Inflated(source, MOST_BYTES).rest())
        yield Member(name=name, bytes=len(content), content=iter([memoryview(content)]))

    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 4))
        told = int.from_bytes(file.read(4), "little")  # the content's size as gzip ends with it
    return Contents(files=files, unpacked_bytes=min(told, MOST_BYTES))


def keras_files(path: Path) -> Contents:
    """Put one of Keras's own files where Keras looks for it."""

    def files(source: ArchiveFile) -> Iterator[Member]:
        num_bytes = path.stat().st_size
        yield Member(name=f"datasets/{path.name}", bytes=num_bytes, content=source.rest())

    return Contents(files=files, unpacked_bytes=path.stat().st_size)


def _zip_files(path: Path, kept: re.Pattern[str]) -> Contents:
    """Keep the members whose names match, under the name in the pattern's group."""
    directory = [info for info in read_directory(path) if kept.fullmatch(member_path(info))]
    if not directory:
        message = f"`{path.name}` holds none of the expected files"
        raise TrainingError(message, hint=GET_AGAIN)

    def files(source: ArchiveFile) -> Iterator[Member]:
        for member in zip_members(source, directory):
            matched = kept.fullmatch(member.name)
            assert matched
            member.name = matched[1]
            yield member

    return Contents(files=files, unpacked_bytes=sum(info.file_size for info in directory))
