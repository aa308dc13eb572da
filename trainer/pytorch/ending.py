"""What every PyTorch program does at its end: wait for the device, compare the ranks' weights."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from trainer.common.errors import TrainingError
from trainer.pytorch.state import weights_digest
from trainer.pytorch.strategy import Strategy


def waiter(device: torch.device) -> Callable[[], None]:
    """Give what waits until the device has done all it was given."""
    return torch.cuda.synchronize if device.type == "cuda" else lambda: None


def gather_digests(network: nn.Module, strategy: Strategy, device: torch.device) -> list[str]:
    """Give the SHA-256 of every rank's weights; raises TrainingError where two differ."""
    mine = torch.tensor(list(weights_digest(network)), dtype=torch.uint8, device=device)
    digests = [bytes(part.tolist()).hex() for part in strategy.gather(mine)]
    for rank, other in enumerate(digests):
        if other != digests[0]:
            message = f"rank {rank} ended with other weights than rank 0"
            raise TrainingError(message)
    return digests
