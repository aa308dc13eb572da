"""Reads COCO's pictures for training: in the order of an epoch, mirrored, past corrupt ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from trainer.common.errors import TrainingError
from trainer.common.sharding import shard
from trainer.common.world import World
from trainer.data.pictures.coco_batches import count_batches, grouped_batches, is_flipped
from trainer.data.pictures.corrupt import CorruptPictures
from trainer.data.pictures.header import CorruptPicture
from trainer.pytorch.coco_cache import CachedPictures
from trainer.pytorch.maskrcnn_loading import Sample, read_sample


@dataclass(frozen=True, kw_only=True)
class Epochs:
    """Order the pictures to learn from in global batches of `batch_size`; `corrupt` counts those passed over."""

    pictures: CachedPictures
    batch_size: int
    seed: int
    world: World
    corrupt: CorruptPictures

    @property
    def num_batches(self) -> int:
        """Global batches of one epoch."""
        return count_batches(self.pictures.is_wide, self.batch_size)

    def reads(self, epoch: int, *, first: int, end: int) -> Iterator[list[Callable[[], Sample]]]:
        """Yield what reads this rank's part of each batch from `first` to before `end`.

        Epochs are counted from 1.
        """
        is_wide = self.pictures.is_wide
        order = grouped_batches(is_wide, self.batch_size, seed=self.seed, epoch=epoch)
        for batch in itertools.islice(order, first, end):
            yield [
                partial(self.read, index, is_flipped=is_flipped(index, seed=self.seed, epoch=epoch))
                for index in shard(batch, self.world)
            ]

    def read(self, index: int, *, is_flipped: bool) -> Sample:
        """Read a picture, or the next one that is not corrupt in its place."""
        number = len(self.pictures)
        for each in range(index, index + number):
            try:
                return read_sample(self.pictures[each % number], is_flipped=is_flipped)
            except CorruptPicture as error:
                self.corrupt.skip(error)
        message = f"none of the {number} training pictures can be decoded"
        raise TrainingError(message, hint="get the data set again")

    def read_fullest(self) -> Sample:
        """Read the picture with the most objects, which takes the most memory."""
        return self.read(int(self.pictures.num_objects.argmax()), is_flipped=False)
