"""Predicts the classes of some pictures of a set."""

from __future__ import annotations

import torch
from torch import nn

from trainer.data.pictures.crops import center_crop
from trainer.data.pictures.grid import Prediction
from trainer.data.pictures.splits import Pictures
from trainer.pytorch.loader import Source, normalise
from trainer.pytorch.precision import PrecisionName, autocast


@torch.no_grad()
def predict_some(
    network: nn.Module,
    source: Source,
    pictures: Pictures,
    *,
    number: int,
    precision: PrecisionName,
) -> list[Prediction]:
    """Predict so many of the pictures, spread evenly over them.

    `source` gives the same pictures as batches.
    """
    num_all = len(pictures.labels)
    number = min(number, num_all)
    shown = [place * num_all // number for place in range(number)]
    (batch,) = source.batches([shown], lambda _, *size: center_crop(*size))
    network.eval()
    with autocast(precision, batch.images.device):
        scores = network(normalise(batch.images)).float()
    shares, labels = scores.softmax(dim=1).max(dim=1)
    return [
        Prediction(
            picture=pictures.read(index),
            predicted=pictures.classes[label],
            share=share,
            true=pictures.classes[pictures.labels[index]],
        )
        for index, label, share in zip(batch.samples, labels.tolist(), shares.tolist(), strict=True)
    ]
