"""Opens pictures of a packed dataset whose tar or TFRecord shards lie beside its index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer.common.errors import TrainingError
from trainer.data.pictures.files import FileRange, close_shards, unreadable
from trainer.data.shards.index import INDEX_FILE, Index, Places, Split, read_places


@dataclass(frozen=True, kw_only=True)
class PackedPictures:
    """Pictures that are read by their places, which the index holds: nothing is scanned."""

    paths: Sequence[str]
    classes: tuple[str, ...]
    places: Places
    shard_sizes: Sequence[int]

    @property
    def labels(self) -> Sequence[int]:
        """The label of each picture."""
        return self.places.labels

    def name(self, index: int) -> str:
        """Give the shard's path and where in it the picture begins."""
        return f"{self.paths[self.places.shards[index]]}@{self.places.offsets[index]}"

    def file_range(self, index: int) -> FileRange:
        """Give the picture's part of its shard."""
        places = self.places
        path = self.paths[places.shards[index]]
        return FileRange(path, places.offsets[index], places.lengths[index])

    def read(self, index: int) -> bytes:
        """Read the picture's bytes from its shard."""
        return self.file_range(index).read(self.name(index))

    def announce(self, samples: Sequence[int]) -> None:
        """Do nothing: the system reads a disk ahead."""


def open_packed(folder: Path, index: Index, split: str) -> PackedPictures:
    """Open one split; raises TrainingError where a shard is not there or is of another size."""
    about = index.splits[split]
    paths = [str(folder / shard.path) for shard in about.shards]
    _require_shards(paths, about)
    close_shards()
    return PackedPictures(
        paths=paths,
        classes=index.classes,
        places=read_places(folder, split),
        shard_sizes=tuple(shard.samples for shard in about.shards),
    )


def _require_shards(paths: Sequence[str], about: Split) -> None:
    for path, shard in zip(paths, about.shards, strict=True):
        try:
            found_bytes = Path(path).stat().st_size
        except OSError as error:
            raise unreadable(path, error.strerror) from None
        if found_bytes != shard.bytes:
            message = f"`{path}` has {found_bytes} bytes, and `{INDEX_FILE}` says {shard.bytes}"
            raise TrainingError(message, hint="get the dataset again")
