"""Prints the pixels of some batches as PyTorch's loader gives them: main([FOLDER])."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from trainer.data.pictures.crops import epoch_crop
from trainer.data.pictures.splits import open_pictures
from trainer.pytorch.decoding import DecodingWorkers
from trainer.pytorch.loader import Loader

# As tf_loader_checks.py crops.
crop_of = partial(epoch_crop, 1, 2)


def main(argv: Sequence[str]) -> None:
    """Print them in hexadecimal, height by width by colour."""
    pictures = open_pictures(Path(argv[0]), "train")
    loader = Loader(pictures, torch.device("cpu"), size=32, workers=DecodingWorkers(2))
    batches = loader.batches([[3, 20, 2], [], [1, 14]], crop_of)
    data = b"".join(batch.images.permute(0, 2, 3, 1).numpy().tobytes() for batch in batches)
    print(data.hex())
