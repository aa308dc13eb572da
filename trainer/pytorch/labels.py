"""Mixes pictures and their labels, computes losses of scores, and turns scores into probabilities."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def mix(
    images: Tensor, labels: Tensor, *, mixup: float, cutmix: float, num_classes: int
) -> tuple[Tensor, Tensor]:
    """Mix each picture of a batch with its neighbour; gives labels as N x `num_classes` shares.

    With both alphas above 0 a batch is blended or pasted, at equal odds. Draws from torch's generator
    of the CPU, which checkpoints keep.
    Sources: Zhang et al. 2017, arXiv 1710.09412 (mixup); Yun et al. 2019, arXiv 1905.04899 (CutMix).
    """
    # Here, since MNIST's program evaluates without torchvision.
    from torchvision.transforms.v2 import CutMix, MixUp

    is_blended = bool(mixup) and (not cutmix or torch.rand(()).item() < 0.5)
    kind, alpha = (MixUp, mixup) if is_blended else (CutMix, cutmix)
    return kind(alpha=alpha, num_classes=num_classes)(images, labels)


def cross_entropy(scores: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Compute the mean cross entropy of N x C scores and labels, which are numbers or shares.

    Source of the smoothing: Szegedy et al. 2015, arXiv 1512.00567.
    """
    return functional.cross_entropy(scores, labels, label_smoothing=smoothing)


def binary_cross_entropy(scores: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Compute the mean over pictures and classes of a binary cross entropy for each class.

    Source: Wightman et al. 2021, arXiv 2110.00476.
    """
    num_classes = scores.shape[1]
    shares = labels if labels.ndim == 2 else functional.one_hot(labels, num_classes)
    shares = shares.to(torch.float32) * (1 - smoothing) + smoothing / num_classes
    return functional.binary_cross_entropy_with_logits(scores.float(), shares)


def shares_of_one(scores: Tensor) -> Tensor:
    """Turn N x C scores into the probability of each class among all of them: their sum is 1."""
    return scores.float().softmax(dim=1)


def chances_of_each(scores: Tensor) -> Tensor:
    """Turn N x C scores into the probability of each class by itself: their sum is any number."""
    return scores.float().sigmoid()


LOSSES = {"ce": cross_entropy, "bce": binary_cross_entropy}
# What a network's scores say, by the loss that it was trained with.
PROBABILITIES = {"ce": shares_of_one, "bce": chances_of_each}
