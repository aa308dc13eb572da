"""Trains an odd network by own.main, as one of the ranks that the environment tells of.

main(["buffers" or "idle", ...options of trainer.pytorch.own])
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from tests.integration.programs.own_checks import SIDE, described
from trainer.pytorch import own

LOWEST = torch.finfo(torch.float32).min


class Odd(nn.Module):
    """A network with buffers in which ranks differ, or with a layer that no loss depends on."""

    count: Tensor
    seen: Tensor

    def __init__(self, *, is_idle: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(SIDE**3, 1)
        self.pooler = nn.Linear(1, 1) if is_idle else nn.Identity()
        self.register_buffer("count", torch.tensor(0))
        self.register_buffer("seen", torch.zeros(2))
        self.register_buffer("mask", torch.full((3,), LOWEST))

    def forward(self, cubes: Tensor) -> Tensor:
        """Compute the outputs; counts what it sees, in evaluations, too."""
        self.count += (cubes > 0).sum()
        self.seen += cubes.mean()
        return self.linear(cubes.flatten(1))


def main(argv: Sequence[str]) -> int:
    """Train; gives the exit code."""
    kind, *options = argv
    given = ("--batch-size", "8", "--epochs", "2", "--device", "cpu")
    made = described(build=lambda: Odd(is_idle=kind == "idle"))
    code = own.main(made, [*given, *options])
    model = Path("outputs/model/cubes.safetensors")
    if not code and model.exists() and (load_file(model)["mask"] == LOWEST).all():
        print("mask is whole")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
