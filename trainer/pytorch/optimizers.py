"""Makes the optimizers that classifiers train with: SGD, AdamW or LAMB."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from torch.optim import Optimizer

from trainer.common.errors import TrainingError
from trainer.pytorch.precision import can_fuse, make_sgd

# Torch has no public names for the kernels of many tensors that its own optimizers use.
_multiply, _norms = torch._foreach_mul, torch._foreach_norm  # noqa: SLF001
_take_adams_step = torch._fused_adam_

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
    2019, arXiv 1904.00962 (LAMB). Raises TrainingError for complex parameters where it takes none.
    """
    groups = [*groups]
    if name == "sgd":
        return make_sgd(groups, lr=lr, momentum=momentum, scaler=scaler)
    fused = can_fuse(groups, scaler=scaler)
    if name == "adamw":
        return torch.optim.AdamW(groups, lr=lr, fused=fused)
    if not fused:
        message = "--optimizer lamb takes no complex parameters, and the network has some"
        raise TrainingError(message, hint="--optimizer adamw, or sgd")
    return Lamb(groups, lr=lr)


class Lamb(Optimizer):
    """LAMB: each tensor's step of Adam is scaled to the norm of that tensor.

    Groups that do not adapt, batch norms and biases, take Adam's step as it is. A step whose gradients
    overflowed is left out by the kernels: fp16's scaler hands on `found_inf`, which is not read.
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
        super().__init__(params, defaults | {"adapts": True})
        self._step_supports_amp_scaling = True

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
        found_inf: torch.Tensor | None = getattr(self, "found_inf", None)
        states = [self._state(each) for each in parameters]
        means, squares, num_steps = (
            [state[name] for state in states] for name in ("mean", "square", "num_steps")
        )
        torch._foreach_add_(num_steps, 1)
        # Adam's steps from zero.
        updates = list(_multiply(parameters, 0.0))
        _take_adams_step(
            *(updates, [each.grad for each in parameters], means, squares, [], num_steps),
            lr=1.0,
            beta1=beta1,
            beta2=beta2,
            weight_decay=0.0,
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
            grad_scale=getattr(self, "grad_scale", None),
            found_inf=found_inf,
        )
        if group["weight_decay"]:
            torch._foreach_sub_(updates, parameters, alpha=group["weight_decay"])
        if group["adapts"]:
            ours, theirs = (torch.stack(list(_norms(each))) for each in (parameters, updates))
            ratios = torch.where((ours > 0) & (theirs > 0), ours / theirs, torch.ones_like(ours))
            torch._foreach_mul_(updates, list(ratios.unbind()))
        if found_inf is not None:
            torch._foreach_sub_(num_steps, [found_inf] * len(num_steps))
            torch._foreach_mul_(updates, 1 - found_inf)
        torch._foreach_add_(parameters, updates, alpha=group["lr"])

    def _state(self, parameter: torch.Tensor) -> dict[str, Any]:
        """Give what is kept of a tensor, for its next step."""
        state: dict[str, Any] = self.state[parameter]
        if not state:
            state["mean"] = torch.zeros_like(parameter)
            state["square"] = torch.zeros_like(parameter)
        if "num_steps" not in state:
            # A checkpoint of before 2026-11-26 has a number.
            taken = float(state.pop("step", 0))
            state["num_steps"] = torch.full((), taken, device=parameter.device)
        return state
