"""Train a small vision transformer on pictures in class folders, as ImageNet's lie."""

import sys

from torch import nn
from torchvision.models import VisionTransformer

from trainer.pytorch import classifier


def build(num_classes: int, image_size: int) -> nn.Module:
    """Six layers over patches of 8 x 8 pixels; ImageNet wants 16 x 16, twelve layers and more width."""
    return VisionTransformer(
        image_size=image_size,
        patch_size=8,
        num_layers=6,
        num_heads=4,
        hidden_dim=128,
        mlp_dim=256,
        dropout=0.1,
        num_classes=num_classes,
    )


# Flags of the program that suit transformers; those of the command line win.
DEFAULTS = (
    *("--optimizer", "adamw", "--lr", "0.002", "--weight-decay", "0.05"),
    *("--schedule", "cosine", "--warmup-epochs", "1", "--clip-norm", "1"),
)

if __name__ == "__main__":
    sys.exit(
        classifier.main(program="vit", description=__doc__ or "", build=build, defaults=DEFAULTS)
    )
