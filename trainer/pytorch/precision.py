"""Defines the precisions that a PyTorch program computes in, and the step of each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainer.common.errors import TrainingError
from trainer.common.training_options import PrecisionName
from trainer.pytorch.strategy import Strategy

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def require_units(name: PrecisionName, device: torch.device) -> None:
    """Raise TrainingError for bf16 on a GPU that only emulates it, as those before Ampere do."""
    if name != "bf16" or device.type != "cuda":
        return
    if not torch.cuda.is_bf16_supported(including_emulation=False):
        message = f"{torch.cuda.get_device_name(device)} has no units for bf16"
        raise TrainingError(message, hint="--precision fp16")


def autocast(name: PrecisionName, device: torch.device) -> torch.autocast:
    """Give the context in which networks compute; weights stay fp32."""
    return torch.autocast(device.type, dtype=DTYPES[name], enabled=name != "fp32")


def make_scaler(name: PrecisionName, device: torch.device) -> torch.amp.GradScaler | None:
    """Make the loss scaler that keeps small gradients above zero; only fp16's range needs it."""
    return torch.amp.GradScaler(device.type) if name == "fp16" else None


def make_sgd(
    parameters: Iterable[Tensor] | Iterable[dict[str, Any]],
    *,
    lr: float,
    momentum: float,
    scaler: torch.amp.GradScaler | None,
) -> torch.optim.SGD:
    """Make the optimizer, fused: it skips a step whose gradients overflowed without the host's waiting.

    A fused SGD makes its first momentum of uninitialised memory where the scaler skips its first
    step (torch 2.15, torch/optim/sgd.py; https://github.com/LibreYOLO/libreyolo/pull/771 met it): with
    a scaler it begins with zeros, which come to the same. Horovod's wrapper is a new optimizer of the
    same groups, without that state, which skips no step by itself: there the host waits for the
    scaler's answer and leaves the call out.
    """
    given = [*parameters]
    fused = can_fuse(given, scaler=scaler)
    made = torch.optim.SGD(given, lr=lr, momentum=momentum, fused=fused)
    if scaler is not None and momentum:
        for group in made.param_groups:
            for parameter in group["params"]:
                made.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return made


def can_fuse(
    parameters: Iterable[Tensor | dict[str, Any]], *, scaler: torch.amp.GradScaler | None
) -> bool:
    """Tell whether torch's fused optimizers take these parameters, or groups: they take no complex ones.

    Raises TrainingError for complex ones under a scaler, which does not take them, either.
    """
    groups = [each["params"] if isinstance(each, dict) else [each] for each in parameters]
    if not any(each.is_complex() for group in groups for each in group):
        return True
    if scaler is not None:
        message = "--precision fp16 scales gradients, and the network has complex parameters"
        raise TrainingError(message, hint="--precision bf16, or fp32")
    return False


def take_step(
    optimizer: Optimizer,
    *,
    strategy: Strategy,
    scaler: torch.amp.GradScaler | None,
    clip: float | None = None,
) -> None:
    """Take one step with the gradients' average over ranks, none where fp16's overflowed.

    `clip` is the largest norm of all gradients together: Pascanu et al. 2013, arXiv 1211.5063.
    """
    if scaler is None and clip is None:
        optimizer.step()
        return
    with strategy.averaged(optimizer):
        if scaler is not None:
            scaler.unscale_(optimizer)
        if clip is not None:
            groups = optimizer.param_groups
            nn.utils.clip_grad_norm_([each for group in groups for each in group["params"]], clip)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
