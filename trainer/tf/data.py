"""Opens the picture data of the TensorFlow and Keras programs: a user's folder, a made set, or noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from trainer.common.sharding import require_full_batch
from trainer.data.pictures.corrupt import CorruptPictures
from trainer.data.pictures.splits import open_splits
from trainer.data.synthesize.picture_folder import MadeSet, picture_folder
from trainer.tf.decoding import decoding_of_batches
from trainer.tf.loader import Loader, Noise, Source
from trainer.tf.strategy import DeviceName, Ranks

if TYPE_CHECKING:
    from trainer.tf.job import Options

RANDOM = "random"


@dataclass(frozen=True, kw_only=True)
class Data:
    """Training and validation pictures as batches, and how many there are."""

    train: Source
    val: Source
    num_train: int
    num_val: int
    classes: Sequence[str]
    # Of the training pictures, where they are in shards: the order keeps to few of them.
    shard_sizes: Sequence[int] = ()
    # That were skipped, where pictures are decoded.
    corrupt: CorruptPictures | None = None

    @property
    def num_classes(self) -> int:
        """Classes that the network tells apart."""
        return len(self.classes)


def open_data(options: Options, ranks: Ranks, device: DeviceName) -> Data:
    """Open the folder, or make what `--data` names; a collective.

    Raises TrainingError where a training set is smaller than a batch of all ranks.
    """
    batch = options.batch_per_rank
    made = MadeSet(
        num_classes=options.num_classes,
        num_train=options.num_images,
        size=options.image_size,
        seed=options.seed,
    )
    if options.data == RANDOM:
        require_full_batch(made.num_train, batch_per_rank=batch, world_size=ranks.world.size)
        noise = Noise(num_classes=made.num_classes, batch=batch, size=made.size, seed=made.seed)
        names = [str(number) for number in range(made.num_classes)]
        # One batch is enough to validate nothing.
        return Data(train=noise, val=noise, num_train=made.num_train, num_val=batch, classes=names)
    folder = picture_folder(options.data, made, ranks, input_name="imagenet")
    train, val = open_splits(folder, is_main=ranks.world.is_main)
    require_full_batch(len(train.labels), batch_per_rank=batch, world_size=ranks.world.size)
    corrupt = CorruptPictures(options.max_corrupt, fail=ranks.notice.fail)
    load = partial(
        Loader,
        batch=batch,
        size=options.image_size,
        decoding=decoding_of_batches(options.workers or ranks.world.num_workers(device)),
        device=device,
        decoder=options.decoder,
        corrupt=corrupt,
    )
    return Data(
        train=load(train, is_filled=True),
        val=load(val),
        num_train=len(train.labels),
        num_val=len(val.labels),
        classes=train.classes,
        shard_sizes=train.shard_sizes,
        corrupt=corrupt,
    )
