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

from trainer.pytorch import classifier
from trainer.pytorch.classifier import Options

__all__ = ["Options", "main"]  # a program's options are read by this name

PROGRAM = "trainer.pytorch.resnet50"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; gives its exit code."""
    return classifier.main(argv, program=PROGRAM, description=__doc__ or "")


if __name__ == "__main__":
    sys.exit(main())
