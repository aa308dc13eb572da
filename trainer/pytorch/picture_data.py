"""Opens the picture data of a PyTorch program: a user's folder, a made set, or noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import torch

from trainer.common.options import MAY_CHANGE
from trainer.common.training_options import LossName
from trainer.data.pictures.corrupt import CorruptPictures
from trainer.data.pictures.jpeg_crop import DecoderName
from trainer.data.pictures.splits import Pictures, Repeated, open_splits
from trainer.data.streaming.flow import Flow
from trainer.data.streaming.source import StreamedPictures
from trainer.data.synthesize.picture_folder import MadeSet
from trainer.pytorch.decoding import DecodingWorkers
from trainer.pytorch.loader import Loader, Noise, Source
from trainer.pytorch.program import StepOptions
from trainer.pytorch.strategy import Ranks

RANDOM = "random"


@dataclass(frozen=True, kw_only=True)
class PictureOptions(StepOptions):
    """Options of programs that tell pictures apart; their defaults are each program's own."""

    batch_per_rank: Annotated[int, "pictures per step on each rank", MAY_CHANGE] = 32
    image_size: Annotated[int, "side of the network's input, in pixels"] = 224
    label_smoothing: Annotated[float, "share of a label that all classes get"] = 0.0
    mixup: Annotated[float, "alpha by which two pictures are blended; 0 blends none"] = 0.0
    cutmix: Annotated[float, "alpha by which one picture is pasted into another; 0: none"] = 0.0
    loss: Annotated[LossName, "cross entropy, or a binary one for each class"] = "ce"
    decoder: Annotated[
        DecoderName, "JPEG decoder: libjpeg-turbo, or Trainyard's, compiled here", MAY_CHANGE
    ] = "library"
    workers: Annotated[
        int | None,
        "threads or processes that decode, per rank (default: its share of cores)",
        MAY_CHANGE,
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_at_least(0, "mixup", "cutmix")
        self.require_share("label_smoothing")


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
    # Where pictures are decoded.
    workers: DecodingWorkers | None = None
    # From the store, where they are streamed.
    flow: Flow | None = None
    # That were skipped, where pictures are decoded.
    corrupt: CorruptPictures | None = None


def open_loaders(
    folder: Path,
    ranks: Ranks,
    device: torch.device,
    options: PictureOptions,
    *,
    skips_corrupt: bool = True,
    repeats: int = 1,
    modules: Sequence[str] = (),
) -> tuple[Data, Pictures, Pictures]:
    """Open a data set's folder; gives its batches and the pictures that they are made of.

    The modules have what changes the pixels of pictures, if anything does.
    """
    train, val = open_splits(folder, is_main=ranks.world.is_main)
    workers = DecodingWorkers(num_workers(options, ranks, device), modules)
    corrupt = (
        CorruptPictures(options.max_corrupt, fail=ranks.notice.fail) if skips_corrupt else None
    )
    load = partial(
        Loader,
        device=device,
        size=options.image_size,
        workers=workers,
        decoder=options.decoder,
        corrupt=corrupt,
    )
    data = Data(
        train=load(Repeated(train, repeats) if repeats > 1 else train, is_filled=True),
        val=load(val),
        num_train=len(train.labels),
        num_val=len(val.labels),
        classes=train.classes,
        shard_sizes=train.shard_sizes,
        flow=train.flow if isinstance(train, StreamedPictures) else None,
        workers=workers,
        corrupt=corrupt,
    )
    return data, train, val


def num_workers(options: PictureOptions, ranks: Ranks, device: torch.device) -> int:
    """Give --workers, or this rank's share of cores."""
    return options.workers or ranks.world.num_workers(device.type)


def make_noise(made: MadeSet, device: torch.device, *, batch: int) -> Data:
    """Give batches of noise in place of a set of that size; one is enough to validate nothing."""
    noise = Noise(device, num_classes=made.num_classes, batch=batch, size=made.size, seed=made.seed)
    return Data(
        train=noise,
        val=noise,
        num_train=made.num_train,
        num_val=batch,
        classes=[str(number) for number in range(made.num_classes)],
    )
