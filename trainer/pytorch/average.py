"""Keeps the moving average of a network's weights."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from trainer.common.errors import TrainingError


class Average(nn.Module):
    """The moving average of a network's parameters and buffers, as the network `module`.

    Source: Polyak and Juditsky 1992. As torch.optim.swa_utils.AveragedModel, whose names checkpoints
    have; that one copies its counter to the device in each update, for which the host waits.
    """

    n_averaged: Tensor

    def __init__(self, network: nn.Module, *, decay: float) -> None:
        super().__init__()
        require_copyable(network)
        self.module = copy.deepcopy(network)
        self.register_buffer("n_averaged", torch.tensor(0))  # stays on the CPU
        self._decay = decay

    @torch.no_grad()
    def update(self, network: nn.Module) -> None:
        """Move towards the network's weights; the first update takes them as they are."""
        kept, fresh = _tensors(self.module), _tensors(network)
        if self.n_averaged == 0:
            torch._foreach_copy_(kept, fresh)
        else:
            pairs = list(zip(kept, fresh, strict=True))
            floats = [pair for pair in pairs if pair[0].is_floating_point()]
            if floats:
                torch._foreach_lerp_(
                    [old for old, _ in floats], [new for _, new in floats], 1 - self._decay
                )
            for old, new in pairs:
                if old.is_complex():
                    old.lerp_(new, 1 - self._decay)
                elif not old.is_floating_point():
                    old.copy_(new)  # an index, a mask or a count has no mean
        self.n_averaged += 1


def require_copyable(network: nn.Module) -> None:
    """Raise TrainingError where the network has computed a weight beside its parameters, as old norms of weights do."""
    for path, module in network.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, Tensor) and not value.is_leaf:
                where = f"{path}.{name}".strip(".")
                message = f"--ema cannot copy `{where}`, which is computed of other weights"
                hint = "nn.utils.parametrizations.weight_norm, or spectral_norm, in its place"
                raise TrainingError(message, hint=hint)


def _tensors(network: nn.Module) -> list[Tensor]:
    return [each.detach() for each in (*network.parameters(), *network.buffers())]
