"""Trains a transformer without dropout or batch norms: the same at any split of a batch."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn
from torchvision.models import VisionTransformer

from trainer.pytorch import classifier


def build(num_classes: int, image_size: int) -> nn.Module:
    return VisionTransformer(image_size, 8, 2, 2, 32, 64, num_classes=num_classes)


def main(argv: Sequence[str] | None = None) -> int:
    return classifier.main(argv, program="plain_vit", build=build)
