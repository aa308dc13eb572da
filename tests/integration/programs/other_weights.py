"""Writes a file of weights that are of no network of ours: main([FILE])."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def main(argv: Sequence[str]) -> None:
    """Write one tensor."""
    torch.save({"conv1.weight": torch.zeros(1)}, argv[0])
