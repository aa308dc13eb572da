"""Predicts the classes of pictures by a network of PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from trainer.common.training_options import LossName
from trainer.data.pictures.crops import center_crop
from trainer.data.pictures.grid import Prediction
from trainer.data.pictures.splits import Pictures
from trainer.pytorch.labels import PROBABILITIES
from trainer.pytorch.loader import Source, normalise
from trainer.pytorch.precision import PrecisionName, autocast
from trainer.pytorch.transfer import copied_ahead

BATCH = 32


@torch.no_grad()
def picture_shares(
    network: nn.Module,
    source: Source,
    samples: Sequence[int],
    *,
    precision: PrecisionName,
    loss: LossName,
) -> Iterator[tuple[int, Tensor]]:
    """Yield each of these pictures of a source, cropped as in evaluation, and its classes' shares (C).

    They are probabilities as a network means them that was trained with that loss. A corrupt picture that
    the source leaves out is left out.
    """
    network.eval()
    order = [samples[start : start + BATCH] for start in range(0, len(samples), BATCH)]
    device = next(network.parameters()).device
    pictures = source.batches(order, center_crop)
    for batch in copied_ahead(pictures, device):
        if not batch.samples:
            continue
        with autocast(precision, device):
            scores = network(normalise(batch.images))
        yield from zip(batch.samples, PROBABILITIES[loss](scores).cpu(), strict=True)


def predict_some(
    network: nn.Module,
    source: Source,
    pictures: Pictures,
    *,
    number: int,
    precision: PrecisionName,
    loss: LossName,
) -> list[Prediction]:
    """Predict so many of the pictures, spread evenly over them.

    `source` gives the same pictures as batches.
    """
    num_all = len(pictures.labels)
    number = min(number, num_all)
    shown = [place * num_all // number for place in range(number)]
    predictions: list[Prediction] = []
    shares = picture_shares(network, source, shown, precision=precision, loss=loss)
    for index, of_classes in shares:
        share, label = of_classes.max(dim=0)
        predicted, true = (pictures.classes[each] for each in (int(label), pictures.labels[index]))
        predictions.append(
            Prediction(
                picture=pictures.read(index),
                predicted=predicted,
                share=share.item(),
                about=f"true {true}",
                is_right=predicted == true,
            )
        )
    return predictions
