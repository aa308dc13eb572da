"""Batches rows that lie on the device: small pictures, or a frozen backbone's features, computed once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from trainer.common.sharding import shard
from trainer.common.throughput import Throughput
from trainer.data.pictures.crops import center_crop
from trainer.data.pictures.put_crop import CropOf
from trainer.pytorch.decoding import Augment
from trainer.pytorch.loader import Batch, Source, normalise
from trainer.pytorch.precision import PrecisionName, autocast
from trainer.pytorch.strategy import Ranks
from trainer.pytorch.transfer import copied_ahead, send

if TYPE_CHECKING:  # programs whose network is their own train without torchvision
    from torchvision.models import ResNet

BATCH = 32
# Batches whose rows are picked at once: one call for many rows costs little more than for few.
BATCHES_AT_ONCE = 8


class Features:
    """A row of features, or a small picture, for each sample, on the device, and its label (N)."""

    def __init__(self, rows: Tensor, labels: Tensor) -> None:
        self._rows = rows
        self._labels = labels

    def __len__(self) -> int:
        return len(self._labels)

    def batches(
        self,
        order: Iterable[Sequence[int]],
        _crop_of: CropOf | None = None,
        _augment: Augment | None = None,
        /,
    ) -> Iterator[Batch]:
        """Give the rows of these samples, as they are, picked for many batches at once."""
        left = iter(order)
        while block := list(islice(left, BATCHES_AT_ONCE)):
            picked = torch.tensor([row for samples in block for row in samples], dtype=torch.long)
            picked = send(picked, self._rows.device)
            sizes = [len(samples) for samples in block]
            rows = self._rows.index_select(0, picked).split(sizes)
            labels = self._labels.index_select(0, picked).split(sizes)
            for images, numbers, samples in zip(rows, labels, block, strict=True):
                yield Batch(images=images, labels=numbers, samples=samples)


@torch.no_grad()
def compute_features(
    network: ResNet,
    ranks: Ranks,
    source: Source,
    labels: Sequence[int],
    *,
    device: torch.device,
    precision: PrecisionName,
    throughput: Throughput,
) -> Features:
    """Run each picture through the network up to its head, once; each rank does its share.

    All ranks get all rows, equal to the bit.
    """
    backbone = nn.Sequential(*list(network.children())[:-1], nn.Flatten()).eval()
    size = ranks.world.size
    mine = shard(list(range(len(labels))), ranks.world)
    rows = torch.zeros(-(-len(labels) // size), network.fc.in_features, device=device)
    order = (mine[start : start + BATCH] for start in range(0, len(mine), BATCH))
    done = 0
    with throughput.training():
        pictures = source.batches(order, center_crop)
        for batch in copied_ahead(pictures, device):
            with autocast(precision, device):
                rows[done : done + len(batch.samples)] = backbone(normalise(batch.images))
            before = min(done * size, len(labels))
            done += len(batch.samples)
            throughput.step(min(done * size, len(labels)) - before)
    # Of rank r the k-th row is that of picture k * size + r.
    everyones = torch.stack(ranks.strategy.gather(rows), dim=1).flatten(0, 1)
    return Features(everyones[: len(labels)], torch.tensor(labels, device=device))
