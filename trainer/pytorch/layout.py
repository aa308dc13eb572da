"""Lays convolutions' weights channels last, and shows them and gradients as Horovod wants them: contiguous."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def to_device(network: nn.Module, device: torch.device) -> None:
    """Move a network to a device, the weights of its convolutions of pictures channels last.

    `Module.to` would lay all tensors of four dimensions so, whose strides code may depend on.
    """
    network.to(device)
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
            for weight in module.parameters(recurse=False):
                if weight.dim() == 4:
                    # `contiguous` would leave those of one channel, which are so in both orders, and PyTorch
                    # then computes grey pictures channels first.
                    weight.data = weight.data.to(memory_format=torch.channels_last)


def dense_view(tensor: Tensor) -> Tensor:
    """Give a contiguous view of the same memory where there is one, else the tensor itself."""
    if tensor.is_contiguous() or tensor.dim() != 4:
        return tensor
    is_last = tensor.is_contiguous(memory_format=torch.channels_last)
    return tensor.permute(0, 2, 3, 1) if is_last else tensor


class DenseViews:
    """A Horovod compression that copies nothing and only shows tensors in another order."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, bool]:
        """Give the view, and whether it is another one."""
        view = dense_view(tensor)
        return view, view is not tensor

    @staticmethod
    def decompress(tensor: Tensor, is_view: bool) -> Tensor:
        """Give the tensor in its own order again."""
        return tensor.permute(0, 3, 1, 2) if is_view else tensor
