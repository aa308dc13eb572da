"""Teaches a pretrained ResNet to tell ants from bees, or any classes of few pictures.

    launch shell pytorch -- python -m trainer.pytorch.hymenoptera \\
        --data data/hymenoptera --weights resnet18.safetensors
    launch run hymenoptera-synthetic

`--train head` freezes the backbone: each picture runs through it once, uncropped but for its
middle and never mirrored, and only the head sees epochs. `--train all` fine-tunes every weight on
random crops. Source: torchvision's tutorial on transfer learning. `--data` takes a folder
(docs/training-resnet50.md), or `synthetic` for drawn insects. At the end validation pictures and
what they were taken for are drawn into predictions.png.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainer.common.messages import warn
from trainer.common.model_about import About
from trainer.common.options import MAY_CHANGE, parse_options
from trainer.common.position import Position
from trainer.common.schedule import Schedule, ScheduleName
from trainer.common.throughput import Throughput
from trainer.data.pictures.grid import write_grid
from trainer.data.pictures.splits import Pictures
from trainer.data.synthesize.picture_folder import SYNTHETIC, MadeSet, picture_folder
from trainer.data.synthesize.stripes import INSECTS
from trainer.pytorch.features import Features, compute_features
from trainer.pytorch.finish import waiter
from trainer.pytorch.loader import Batch, Source
from trainer.pytorch.loop import run
from trainer.pytorch.networks import (
    NetworkName,
    build_network,
    build_resnet,
    find_weights,
    load_pretrained,
)
from trainer.pytorch.picture_data import Data, PictureOptions, open_loaders
from trainer.pytorch.picture_task import PictureTask
from trainer.pytorch.precision import make_sgd
from trainer.pytorch.predictions import predict_some
from trainer.pytorch.program import run_program
from trainer.pytorch.task import Part, first_samples

LR_BATCH = 256
NUM_SHOWN = 12


@dataclass(frozen=True, kw_only=True)
class Options(PictureOptions):
    """Hold the options of the command line, as parse_options reads them."""

    data: Annotated[
        str | None, "folder, or `synthetic`; else the run's input `hymenoptera`", MAY_CHANGE
    ] = None
    network: Annotated[NetworkName, "network of the weights"] = "resnet18"
    weights: Annotated[
        Path | None,
        "file of pretrained weights, here or in the data's folder; `none` for random",
        MAY_CHANGE,
    ] = None
    train: Annotated[Literal["head", "all"], "the last layer only, or every weight"] = "head"
    epochs: Annotated[int, "passes over the training set"] = 25
    batch_per_rank: Annotated[int, "pictures per step on each rank"] = 16
    lr: Annotated[float, "peak learning rate for 256 pictures a step"] = 0.06
    schedule: Annotated[ScheduleName, "how the learning rate falls"] = "cosine"
    momentum: Annotated[float, "momentum of SGD"] = 0.9
    num_images: Annotated[int, "training pictures of a synthetic set", MAY_CHANGE] = 240

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_positive("lr", "workers")
        self.require_at_least(2, "batch_per_rank")  # batch statistics of one picture are none
        self.require_at_least(32, "image_size")
        self.require_at_least(0, "momentum")
        self.require_at_least(len(INSECTS), "num_images")
        if self.train == "head" and (self.mixup or self.cutmix):
            message = (
                "--mixup and --cutmix mix pictures, and --train head learns from features of them"
            )
            raise ValueError(message)
        if self.train == "head" and self.sync_batch_norm:
            message = "--sync-batch-norm is for norms that train, and --train head leaves them as they are"
            raise ValueError(message)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; gives its exit code."""
    options = parse_options(Options, argv, description=(__doc__ or "").splitlines()[0])
    return run_program(options, lambda ranks: run(Transfer(options, ranks)))


class Transfer(PictureTask[Options]):
    """Train a pretrained ResNet on few pictures: the head on their features, or every weight."""

    program = "trainer.pytorch.hymenoptera"

    folder: Path
    pictures: tuple[Pictures, Pictures]
    # Whether no file is given for its weights.
    is_random: bool
    features: Features
    val_features: Features
    # Of the pass that made the features: a step on them sees no picture.
    seen: Throughput

    @property
    def is_frozen(self) -> bool:
        """True if only the head learns."""
        return self.options.train == "head"

    def open_data(self) -> Data:
        """Open the folder of pictures, drawn first where `--data` says so; a collective."""
        options = self.options
        drawn = MadeSet(
            names=INSECTS,
            num_classes=len(INSECTS),
            num_train=options.num_images,
            size=options.image_size,
            seed=options.seed,
        )
        self.folder = picture_folder(options.data, drawn, self.ranks, input_name="hymenoptera")
        # Features are computed of every picture, once, before anything is trained.
        data, *pictures = open_loaders(
            self.folder, self.ranks, self.device, options, skips_corrupt=not self.is_frozen
        )
        self.pictures = (pictures[0], pictures[1])
        return data

    def build(self) -> nn.Module:
        """Make the network and load its weights."""
        options = self.options
        is_made = options.data == SYNTHETIC
        has_model = options.model is not None
        weights = find_weights(
            options.weights, self.folder, option="--weights", is_made=is_made or has_model
        )
        network = build_resnet(options.network, len(self.data.classes))
        if weights is not None:
            load_pretrained(network, weights, classes=self.data.classes, say=self.say)
        self.is_random = weights is None and not has_model
        return network

    def about(self) -> dict[str, object]:
        """Give size, classes, and the name of the network."""
        return {**super().about(), "network": self.options.network}

    def rebuild(self, about: About) -> nn.Module:
        """Make the network of a saved model again, with random weights."""
        return build_network(about.network, len(about.classes), about.image_size)

    def begin(self, network: nn.Module, position: Position) -> None:
        """Compute the features of the pictures that are to be seen, where only the head learns.

        A checkpoint holds the backbone that its head was trained on, whichever `--weights` names now.
        """
        if not self.is_frozen:
            return
        if self.is_random and not position.step and self.ranks.world.is_main:
            warn("without --weights the frozen backbone is random")
        self.seen = Throughput(num_warmup_steps=1, synchronise=waiter(self.device))
        of = functools.partial(
            compute_features,
            *(network, self.ranks),
            device=self.device,
            precision=self.options.precision,
            throughput=self.seen,
        )
        train, val = self.pictures
        if not self.options.evaluate_only:
            self.features = of(self.data.train, train.labels)
        self.val_features = of(self.data.val, val.labels)

    def select(self, network: nn.Module) -> nn.Module:
        """Give the head, or the whole network."""
        head: nn.Module = network.fc
        return head if self.is_frozen else network

    @property
    def train_source(self) -> Source:
        """Rows of features for the head, pictures for every weight."""
        return self.features if self.is_frozen else self.data.train

    @property
    def val_source(self) -> Source:
        """Give the batches of the validation set."""
        return self.val_features if self.is_frozen else self.data.val

    def sees(self, images: Tensor) -> Tensor:
        """Leave rows of features as they are."""
        return images if self.is_frozen else super().sees(images)

    def trial(self, number: int) -> Part[Batch]:
        """Make a batch of the first rows of features, or pictures of noise."""
        if not self.is_frozen:
            return super().trial(number)
        features = self.features
        return first_samples(number, len(features), lambda rows: next(features.batches([rows])))

    def optimizer(self, part: nn.Module, scaler: torch.amp.GradScaler | None) -> Optimizer:
        """Make SGD."""
        options = self.options
        return make_sgd(part.parameters(), lr=options.lr, momentum=options.momentum, scaler=scaler)

    @functools.cached_property
    def schedule(self) -> Schedule:
        """Give the learning rate of every step."""
        return Schedule(
            name=self.options.schedule,
            peak=self.options.lr * self.batch_size / LR_BATCH,
            num_steps=self.num_steps,
        )

    @property
    def num_warmup_steps(self) -> int:
        """Steps that the rate of pictures leaves out: all of those on features."""
        return sys.maxsize if self.is_frozen else 1

    def finish(self, network: nn.Module) -> None:
        """Draw validation pictures with what the network takes them for."""
        predictions = predict_some(
            network,
            self.data.val,
            self.pictures[1],
            number=NUM_SHOWN,
            precision=self.options.precision,
            loss=self.options.loss,
        )
        write_grid(self.ranks.run_dir.output("predictions") / "predictions.png", predictions)

    def summary(self) -> dict[str, object]:
        """Give sizes and classes; the rate is that of the features where they were computed."""
        rate = {"images_per_s": self.seen.samples_per_s} if self.is_frozen else {}
        return {
            **super().summary(),
            "network": self.options.network,
            "train": self.options.train,
            "classes": list(self.data.classes),
            **rate,
        }


if __name__ == "__main__":
    sys.exit(main())
