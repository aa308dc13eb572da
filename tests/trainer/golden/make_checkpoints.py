"""Made the checkpoints of checkpoint-format-1, with PyTorch 2.15; they are never made again.

    PYTHONPATH=. python tests/trainer/golden/make_checkpoints.py FOLDER

with the PyTorch runtime's Python. A new format gets a folder of its own beside the old one.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from pathlib import Path

import torch
from torch import nn

from trainer.common.checkpoint import CheckpointFolder
from trainer.pytorch.state import rank_state, take_snapshot


def build() -> tuple[nn.Module, torch.optim.Optimizer]:
    """A network with parameters, statistics and a counter; an optimizer with all kinds of state."""
    network = nn.Sequential(OrderedDict(linear=nn.Linear(3, 2), norm=nn.BatchNorm1d(2)))
    return network, torch.optim.AdamW(network.parameters(), lr=0.01)


def main() -> None:
    """Write both checkpoints."""
    root = Path(sys.argv[1])
    files = {"weights.bin": bytes(range(256)), "empty.bin": b"", "state.json": b'{"lr": 0.1}\n'}
    about = {"position": {"step": 120, "epoch": 3, "batch": 20}, "name": "naïve", "lr": 1e-05}
    CheckpointFolder(root / "protocol").write(120, files, about)

    torch.manual_seed(7)
    network, optimizer = build()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    ranks: dict[str, torch.Tensor] = {}
    for rank in range(2):
        torch.manual_seed(rank)
        for _ in range(3):
            optimizer.zero_grad()
            network(torch.randn(4, 3)).square().sum().backward()
            optimizer.step()
        own = rank_state(network, torch.device("cpu"))
        ranks |= {f"{rank}/{key}": value for key, value in own.items()}
    snapshot = take_snapshot(network, optimizer, ranks=ranks, scaler=scaler)
    about = {
        "recipe": {"program": "golden", "seed": 7},
        "world_size": 2,
        "position": {"step": 6, "epoch": 1, "batch": 2},
    }
    CheckpointFolder(root / "pytorch").write(6, snapshot.files(), about)


if __name__ == "__main__":
    main()
