"""Gives all ranks the same buffers: the mean of their batch statistics, and rank 0's counts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trainer.common.world import World
from trainer.pytorch.state import float_buffers, write_buffers
from trainer.pytorch.strategy import Strategy


def average_buffers(network: nn.Module, strategy: Strategy, world: World) -> None:
    """Give all ranks the mean of their batch statistics, and rank 0's counts; a collective, for before an evaluation.

    The mean is taken in fp64, where a mask of the lowest number stays one.
    """
    if world.size == 1:
        return
    buffers = [each.detach().flatten() for each in float_buffers(network)]
    if buffers:
        total = strategy.sum(torch.cat(buffers).double())
        write_buffers(network, total / world.size)
    others = [each for each in network.buffers() if not each.is_floating_point()]
    copy_of_main(others, strategy, world)


def copy_of_main(tensors: Sequence[Tensor], strategy: Strategy, world: World) -> None:
    """Give these tensors rank 0's values, to the bit; a collective."""
    if not tensors or world.size == 1:
        return
    own = torch.cat([each.detach().contiguous().reshape(-1).view(torch.uint8) for each in tensors])
    told = strategy.gather(own)[0]
    for tensor, part in zip(tensors, told.split([each.nbytes for each in tensors]), strict=True):
        tensor.detach().copy_(part.clone().view(tensor.dtype).view(tensor.shape))
