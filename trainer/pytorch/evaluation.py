"""Evaluates a classifier on a validation set: each picture counts once, at any world size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from trainer.common.errors import TrainingError
from trainer.common.position import Position
from trainer.common.sharding import batches_in_order, shard
from trainer.common.training_options import LossName
from trainer.data.pictures.crops import center_crop
from trainer.pytorch.guard import Guard
from trainer.pytorch.labels import LOSSES
from trainer.pytorch.loader import Source
from trainer.pytorch.precision import autocast
from trainer.pytorch.task import Task
from trainer.pytorch.transfer import copied_ahead

NUM_TOP = 5


@torch.no_grad()
def evaluate(
    network: nn.Module,
    source: Source,
    *,
    num_images: int,
    num_classes: int,
    batch_size: int,
    loss: LossName,
    sees: Callable[[Tensor], Tensor],
    task: Task[Any, Any],
    guard: Guard,
    position: Position,
) -> dict[str, float]:
    """Give mean loss and top-1 accuracy over all pictures but corrupt ones, top-5 of more classes.

    A collective. The ranks' batch statistics are equal before it. The loss is that of training, of
    labels that are neither smoothed nor mixed. `sees` turns a batch's pictures into what the network
    takes. Raises TrainingError where the loss is not finite, and Preempted as `guard` does.
    """
    ranks, device, options = task.ranks, task.device, task.options
    # Losses, right ones, in the top 5.
    totals = torch.zeros(3, dtype=torch.float64, device=device)
    num_seen = 0
    batches = batches_in_order(num_images, batch_size)
    mine = (shard(list(batch), ranks.world) for batch in batches)
    pictures = source.batches(mine, center_crop)
    for batch in copied_ahead(pictures, device):
        if batch.samples:
            num_seen += len(batch.samples)
            with autocast(options.precision, device):
                scores = network(sees(batch.images)).float()
            hits = scores.topk(min(NUM_TOP, num_classes)).indices == batch.labels[:, None]
            mean = LOSSES[loss](scores, batch.labels, 0.0)
            totals += torch.stack([mean * len(batch.samples), hits[:, 0].sum(), hits.sum()])
        guard.check(position)
    guard.settle()
    totals = ranks.strategy.sum(torch.cat([totals, totals.new_full((1,), num_seen)]))
    if not totals[3]:
        message = f"none of the {num_images} pictures to evaluate on can be decoded"
        raise TrainingError(message, hint="get the data set again")
    if not torch.isfinite(totals[0]):
        message = (
            f"training has diverged: the loss of the {task.main_figure.split} set is not finite"
        )
        raise TrainingError(message, hint=options.hint)
    mean_loss, top1, top5 = (totals[:3] / totals[3]).tolist()
    return {"loss": mean_loss, "top1": top1} | ({"top5": top5} if num_classes > NUM_TOP else {})
