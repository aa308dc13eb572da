"""Makes the optimizers that classifiers train with: SGD, AdamW or LAMB."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from torch.optim import Optimizer

from trainer.pytorch.precision import make_sgd

OptimizerName = Literal["sgd", "adamw", "lamb"]


def make_optimizer(
    name: OptimizerName,
    groups: Iterable[dict[str, Any]],
    *,
    lr: float,
    momentum: float,
    scaler: torch.amp.GradScaler | None,
) -> Optimizer:
    """Make the optimizer of these parameter groups, which carry their weight decay.

    `momentum` is SGD's. Sources: Loshchilov and Hutter 2017, arXiv 1711.05101 (AdamW); You et al.
    2019, arXiv 1904.00962 (LAMB).
    """
    if name == "sgd":
        return make_sgd(groups, lr=lr, momentum=momentum, scaler=scaler)
    if name == "adamw":
        return torch.optim.AdamW(groups, lr=lr, fused=scaler is None)
    return Lamb(groups, lr=lr)


class Lamb(Optimizer):
    """LAMB: each tensor's step of Adam is scaled to the norm of that tensor.

    Tensors that do not decay, batch norms and biases, take Adam's step as it is.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Take one step; no value is waited for."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)
        return loss

    def _update(self, parameter: torch.Tensor, group: dict[str, Any]) -> None:
        state, (beta1, beta2) = self.state[parameter], group["betas"]
        if not state:
            state["step"] = 0
            state["mean"] = torch.zeros_like(parameter)
            state["square"] = torch.zeros_like(parameter)
        state["step"] += 1
        mean, square = state["mean"], state["square"]
        mean.lerp_(parameter.grad, 1 - beta1)
        square.mul_(beta2).addcmul_(parameter.grad, parameter.grad, value=1 - beta2)
        unbiased = (square / (1 - beta2 ** state["step"])).sqrt_().add_(group["eps"])
        update = mean / (1 - beta1 ** state["step"]) / unbiased
        if group["weight_decay"]:
            update.add_(parameter, alpha=group["weight_decay"])
            ours, theirs = parameter.norm(), update.norm()
            ratio = torch.where((ours > 0) & (theirs > 0), ours / theirs, torch.ones_like(ours))
            update.mul_(ratio)
        parameter.sub_(update, alpha=group["lr"])
