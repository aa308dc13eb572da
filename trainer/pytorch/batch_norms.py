"""Lets batch norms see the pictures of all ranks, where a rank has too few of its own.

Source: Peng et al. 2017, arXiv 1711.07240 (detectors with 2 pictures a GPU). torch's and Horovod's own
are for GPUs, each for its own ranks; this one computes the same on any device over any strategy.
"""

from __future__ import annotations

import copy
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage]

from trainer.common.errors import TrainingError
from trainer.pytorch.strategy import Strategy


def share_batch_norms(network: nn.Module, strategy: Strategy) -> None:
    """Replace the network's batch norms by ones over all ranks, with the same weights and names.

    Raises TrainingError where it has none that learns, and for one that computes more than a norm.
    """
    # A norm may stand in several places, and be one still.
    found = [
        (path, norm)
        for path, norm in network.named_modules(remove_duplicate=False)
        if path and isinstance(norm, _BatchNorm) and _is_plain(norm, path)
    ]
    if not found:
        message = "--sync-batch-norm is for batch norms that learn, and this network has none"
        raise TrainingError(message, hint="leave it out")
    shared = {id(norm): SharedBatchNorm(norm, strategy) for _, norm in found}
    for path, norm in found:
        parent, _, name = path.rpartition(".")
        setattr(network.get_submodule(parent), name, shared[id(norm)])


def _is_plain(norm: _BatchNorm, path: str) -> bool:
    """Give True; raises TrainingError where the norm has a forward of its own, which would be lost."""
    kind = type(norm)
    if kind.forward in (_BatchNorm.forward, nn.SyncBatchNorm.forward):
        return True
    message = (
        f"--sync-batch-norm cannot share `{path}`: {kind.__module__}.{kind.__qualname__} computes "
        "more than a batch norm, such as an activation"
    )
    raise TrainingError(
        message, hint="leave it out, or a network whose batch norms are torch's own"
    )


class SharedBatchNorm(nn.Module):
    """Normalises by mean and variance over the samples of all ranks: a collective while it trains.

    Takes N x C x ... and gives the same shape and type; ranks may have different N.
    """

    def __init__(self, norm: _BatchNorm, strategy: Strategy) -> None:
        super().__init__()
        self.weight, self.bias = norm.weight, norm.bias
        # None where a norm has none of them, as one that tracks no statistics.
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            self.register_buffer(name, getattr(norm, name))
        self._eps, self._momentum = norm.eps, norm.momentum
        self._strategy = strategy

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copy weights and statistics, as a moving average does; the ranks are the same ones."""
        memo[id(self._strategy)] = self._strategy
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        made.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return made

    @torch.compiler.disable
    def forward(self, samples: Tensor) -> Tensor:
        """Normalise; the running statistics learn from all ranks' samples."""
        if not self.training:
            return nn.functional.batch_norm(
                *(samples, self.running_mean, self.running_var, self.weight, self.bias),
                training=self.running_mean is None,
                eps=self._eps,
            )
        num_channels = samples.shape[1]
        weight = samples.new_ones(num_channels) if self.weight is None else self.weight
        bias = samples.new_zeros(num_channels) if self.bias is None else self.bias
        normal, mean, variance, count = _Normalise.apply(
            samples, weight, bias, self._eps, self._strategy
        )
        if self.running_mean is not None:
            self._learn(mean, variance * (count / (count - 1)))
        return normal

    @torch.no_grad()
    def _learn(self, mean: Tensor, variance: Tensor) -> None:
        """Move the running statistics; without a momentum they are the mean of all batches' own."""
        self.num_batches_tracked.add_(1)
        share = 1 / self.num_batches_tracked if self._momentum is None else self._momentum
        self.running_mean.lerp_(mean, share)
        self.running_var.lerp_(variance, share)


class _Normalise(torch.autograd.Function):
    """Gives the samples normalised, scaled and shifted; mean and variance (C) and the count over ranks."""

    @staticmethod
    def forward(  # noqa: PLR0917 - torch gives them by place
        ctx: Any, samples: Tensor, weight: Tensor, bias: Tensor, eps: float, strategy: Strategy
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        values = samples.float()
        own_variance, own_mean = torch.var_mean(values, dim=_all_but_channels(values), correction=0)
        count = own_mean.new_full((1,), values.numel() // values.shape[1])
        own = torch.cat([own_mean, own_variance, count])
        parts = torch.stack(strategy.gather(own))
        means, variances, counts = parts.split([len(own_mean), len(own_mean), 1], dim=1)
        total = counts.sum()
        mean = (means * counts).sum(dim=0) / total
        variance = ((variances + (means - mean) ** 2) * counts).sum(dim=0) / total
        scale = torch.rsqrt(variance + eps)
        ctx.save_for_backward(samples, weight, mean, scale, total)
        ctx.strategy = strategy
        ctx.mark_non_differentiable(mean, variance, total)
        normal = (values - _wide(mean, values)) * _wide(weight * scale, values)
        return (normal + _wide(bias, values)).to(samples.dtype), mean, variance, total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        samples, weight, mean, scale, total = ctx.saved_tensors
        gradient = gradients[0].float()
        normal = (samples.float() - _wide(mean, gradient)) * _wide(scale, gradient)
        channels = _all_but_channels(gradient)
        of_bias, of_weight = gradient.sum(dim=channels), (gradient * normal).sum(dim=channels)
        means = ctx.strategy.sum(torch.cat([of_bias, of_weight])) / total
        mean_bias, mean_weight = (_wide(each, gradient) for each in means.chunk(2))
        own = (gradient - mean_bias - normal * mean_weight) * _wide(weight * scale, gradient)
        return own.to(samples.dtype), of_weight, of_bias, None, None


def _all_but_channels(values: Tensor) -> tuple[int, ...]:
    return (0, *range(2, values.ndim))


def _wide(channels: Tensor, like: Tensor) -> Tensor:
    """Give a value of each channel the shape that goes with N x C x ..."""
    return channels.view(1, -1, *[1] * (like.ndim - 2))
