"""The precisions that a PyTorch program computes in."""

from __future__ import annotations

from typing import Literal

import torch

PrecisionName = Literal["fp32", "bf16", "fp16"]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(name: PrecisionName, device: torch.device) -> torch.autocast:
    """Give the context in which networks compute; weights stay fp32."""
    return torch.autocast(device.type, dtype=DTYPES[name], enabled=name != "fp32")


def make_scaler(name: PrecisionName, device: torch.device) -> torch.amp.GradScaler | None:
    """Give what keeps small gradients above zero; only fp16's range needs it."""
    return torch.amp.GradScaler(device.type) if name == "fp16" else None
