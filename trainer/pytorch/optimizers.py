"""Makes the optimizers that classifiers train with: SGD, AdamW or LAMB."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from torch.optim import Optimizer

from trainer.pytorch.precision import make_sgd

# Torch has no public names for the kernels of many tensors that its own optimizers use.
_divide, _norms = torch._foreach_div, torch._foreach_norm  # noqa: SLF001

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

    `momentum` is SGD's. LAMB is not fused, so that fp16's scaler asks the device in each step whether
    gradients overflowed, for which the host waits. Sources: Loshchilov and Hutter 2017, arXiv 1711.05101 (AdamW); You et al.
    2019, arXiv 1904.00962 (LAMB).
    """
    if name == "sgd":
        return make_sgd(groups, lr=lr, momentum=momentum, scaler=scaler)
    if name == "adamw":
        return torch.optim.AdamW(groups, lr=lr, fused=True)
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
            learning = [each for each in group["params"] if each.grad is not None]
            if learning:
                self._update(learning, group)
        return loss

    def _update(self, parameters: list[torch.Tensor], group: dict[str, Any]) -> None:
        """Update a group's tensors together: a kernel for many, where one alone would cost as much."""
        beta1, beta2 = group["betas"]
        states = [self._state(each) for each in parameters]
        means, squares = ([state[name] for state in states] for name in ("mean", "square"))
        gradients = [each.grad for each in parameters]
        torch._foreach_lerp_(means, gradients, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - beta2)
        unbiased = _divide(squares, [1 - beta2 ** state["step"] for state in states])
        torch._foreach_sqrt_(unbiased)
        torch._foreach_add_(unbiased, group["eps"])
        updates = _divide(means, [1 - beta1 ** state["step"] for state in states])
        torch._foreach_div_(updates, unbiased)
        if group["weight_decay"]:
            torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
            ours, theirs = (torch.stack(list(_norms(each))) for each in (parameters, updates))
            ratios = torch.where((ours > 0) & (theirs > 0), ours / theirs, torch.ones_like(ours))
            torch._foreach_mul_(updates, list(ratios.unbind()))
        torch._foreach_sub_(parameters, updates, alpha=group["lr"])

    def _state(self, parameter: torch.Tensor) -> dict[str, Any]:
        """Give what is kept of a tensor, for its next step."""
        state: dict[str, Any] = self.state[parameter]
        if not state:
            state["step"] = 0
            state["mean"] = torch.zeros_like(parameter)
            state["square"] = torch.zeros_like(parameter)
        state["step"] += 1
        return state
