"""Trains ResNet-50 on ImageNet, or on any pictures in class folders, on any number of ranks.

    launch shell pytorch -- python -m trainer.pytorch.resnet50 \\
        --data synthetic --image-size 64 --epochs 4
    launch run resnet50-pytorch-synthetic

`--data` takes a folder (docs/training-resnet50.md), `synthetic` for a small set of JPEGs that is
made on the spot, or `random` for one batch of noise on the device, to measure speed. The recipe is
that of Goyal et al. 2017 (arXiv 1706.02677): the learning rate grows with the batch of all ranks,
after a warm-up. One rank needs no strategy; more take DDP, or Horovod with `--strategy horovod`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from torch import nn
from torch.optim import Optimizer

from trainer.common.options import MAY_CHANGE, parse_options
from trainer.common.resnet_options import ResnetOptions
from trainer.common.schedule import Schedule
from trainer.pytorch.classifier import Classifier
from trainer.pytorch.loop import run
from trainer.pytorch.networks import build_resnet, load_pretrained, parameter_groups
from trainer.pytorch.picture_data import (
    RANDOM,
    SYNTHETIC,
    Data,
    MadeSet,
    PictureOptions,
    make_noise,
    make_on_each_node,
    open_loaders,
)
from trainer.pytorch.precision import make_sgd
from trainer.pytorch.program import run_program


@dataclass(frozen=True, kw_only=True)
class Options(ResnetOptions, PictureOptions):
    """The command line; parse_options makes it."""

    compile: Annotated[bool, "let torch.compile make kernels for this network", MAY_CHANGE] = False


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; gives its exit code."""
    options = parse_options(Options, argv, description=(__doc__ or "").splitlines()[0])
    return run_program(options, lambda ranks: run(Resnet50(options, ranks)))


class Resnet50(Classifier[Options]):
    """ImageNet, or any pictures in class folders, and the recipe of Goyal et al."""

    program = "trainer.pytorch.resnet50"

    def open_data(self) -> Data:
        """Open the folder, or make what `--data` names; a collective."""
        options, ranks = self.options, self.ranks
        made = MadeSet(
            num_classes=options.num_classes,
            num_train=options.num_images,
            size=options.image_size,
            seed=options.seed,
        )
        if options.data == RANDOM:
            return make_noise(made, self.device, batch=options.batch_per_rank)
        if options.data == SYNTHETIC:
            folder = make_on_each_node(made, ranks)
        else:
            folder = Path(options.data) if options.data else ranks.run_dir.input("imagenet")
        data, _, _ = open_loaders(
            folder, ranks, self.device, size=options.image_size, workers=options.workers
        )
        return data

    def build(self) -> nn.Module:
        """Make the network, from scratch or from the file of `--weights`."""
        network = build_resnet("resnet50", len(self.data.classes))
        if self.options.weights is not None:
            load_pretrained(network, self.options.weights, say=self.say)
        return network

    def optimizer(self, part: nn.Module, scaler: torch.amp.GradScaler | None) -> Optimizer:
        """Make SGD; batch norms and biases do not decay."""
        options = self.options
        groups = parameter_groups(part, weight_decay=options.weight_decay)
        return make_sgd(groups, lr=options.lr, momentum=options.momentum, scaler=scaler)

    def wrap(self, model: nn.Module) -> nn.Module:
        """Compile the model where the options say so."""
        return torch.compile(model) if self.options.compile else model

    @property
    def schedule(self) -> Schedule:
        """The learning rate of every step."""
        return self.options.rates(batch_size=self.batch_size, num_batches=self.num_batches)

    def summary(self) -> dict[str, object]:
        """Give sizes, and the rate at which cores decode."""
        threads = self.data.threads
        return {
            **super().summary(),
            "decoded_per_core_per_s": threads.decoded_per_core_per_s if threads else None,
        }


if __name__ == "__main__":
    sys.exit(main())
