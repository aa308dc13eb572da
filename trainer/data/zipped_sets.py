"""Which files of COCO's, the ants and bees' and MNIST's archives a data set has, and where.

    train2017.zip val2017.zip annotations_trainval2017.zip
    -> train2017/*.jpg, val2017/*.jpg, annotations/instances_*.json
    hymenoptera_data.zip -> train/ants/*.jpg, train/bees/*.jpg, val/...
    train-images-idx3-ubyte.gz, ... -> train-images-idx3-ubyte, ...

Captions and keypoints of COCO are left out, no trainer here reads them; of the ants and bees a
`.gif` that says a picture was not found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from trainer.common.errors import TrainingError
from trainer.data.archive_file import GET_AGAIN, ArchiveFile, Inflated
from trainer.data.tar_members import Member
from trainer.data.zip_members import member_path, read_directory, zip_members

# The largest of MNIST's files has 47 MB.
_MOST_IDX_BYTES = 256 << 20
_COCO = re.compile(r"((?:train|val)2017/[^/]+\.jpg|annotations/instances_(?:train|val)2017\.json)")
_HYMENOPTERA = re.compile(r"hymenoptera_data/((?:train|val)/(?:ants|bees)/[^/]+\.jpg)")


def coco_files(path: Path) -> tuple[Callable[[ArchiveFile], Iterator[Member]], int]:
    """Give the reader of one of COCO's archives, and how many bytes it unpacks to."""
    return _zip_files(path, _COCO)


def hymenoptera_files(path: Path) -> tuple[Callable[[ArchiveFile], Iterator[Member]], int]:
    """Give the reader of the ants and bees' archive, and how many bytes it unpacks to."""
    return _zip_files(path, _HYMENOPTERA)


def mnist_files(path: Path) -> tuple[Callable[[ArchiveFile], Iterator[Member]], int]:
    """Give the reader of one of MNIST's gzip files, and how many bytes it unpacks to at most."""
    name = path.name.removesuffix(".gz")

    def files(source: ArchiveFile) -> Iterator[Member]:
        # Small enough to be held: how large it is shows only at its end.
        content = b"".join(Inflated(source, _MOST_IDX_BYTES).rest())
        yield Member(name=name, bytes=len(content), content=iter([memoryview(content)]))

    return files, _MOST_IDX_BYTES


def _zip_files(
    path: Path, kept: re.Pattern[str]
) -> tuple[Callable[[ArchiveFile], Iterator[Member]], int]:
    """Keep the members whose names match, under what the pattern's group says."""
    directory = [info for info in read_directory(path) if kept.fullmatch(member_path(info))]
    if not directory:
        message = f"`{path.name}` holds nothing of what it should"
        raise TrainingError(message, hint=GET_AGAIN)

    def files(source: ArchiveFile) -> Iterator[Member]:
        for member in zip_members(source, directory):
            matched = kept.fullmatch(member.name)
            assert matched
            member.name = matched[1]
            yield member

    return files, sum(info.file_size for info in directory)
