"""Prints as JSON what a training would go on with from the newest checkpoint of a folder.

PYTHONPATH=. python tests/trainer/golden/read_pytorch.py FOLDER
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from tests.trainer.golden.make_checkpoints import build
from trainer.common.checkpoint import CheckpointFolder
from trainer.pytorch.state import read_files, restore_rank_state, restore_snapshot


def rounded(value: Tensor) -> list[float]:
    return [round(each, 6) for each in value.flatten().tolist()]


def main(argv: Sequence[str]) -> None:
    """Restore as rank 1 of 2."""
    found = CheckpointFolder(Path(argv[0])).newest(print)
    assert found is not None
    snapshot = read_files(found.files)
    network, optimizer = build()
    scaler = torch.amp.GradScaler("cpu")
    restore_snapshot(snapshot, network, optimizer, scaler=scaler)
    own = {
        key.removeprefix("1/"): value
        for key, value in snapshot.ranks.items()
        if key.startswith("1/")
    }
    restore_rank_state(own, network, torch.device("cpu"))
    state = optimizer.state_dict()
    told = {
        "about": found.about,
        "network": {name: rounded(value) for name, value in network.state_dict().items()},
        "optimizer": [
            {key: rounded(value) for key, value in entries.items()}
            for entries in state["state"].values()
        ],
        "lr": state["param_groups"][0]["lr"],
        "scale": scaler.get_scale(),
        "next_random": rounded(torch.rand(3)),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1:])
