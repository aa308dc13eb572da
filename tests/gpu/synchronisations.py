"""Trains by a program, and prints where the host waited for the device within the steps.

    python -m tests.gpu.synchronisations trainer.pytorch.resnet50 --data random ...

PyTorch warns of each operation that waits (torch.cuda.set_sync_debug_mode). The first epoch is left
out: it tries kernels, and makes constants. Printed last, as JSON: {"FILE": count}.
"""

from __future__ import annotations

import collections
import importlib
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch

from trainer.common.position import Position
from trainer.pytorch.guard import Guard
from trainer.pytorch.loop import Training

WORDS = "called a synchronizing CUDA operation"
found: collections.Counter[str] = collections.Counter()
_train_epoch = Training[Any, Any]._train_epoch


def watched(training: Training[Any, Any], position: Position, guard: Guard) -> Position:
    """Train an epoch as it is, and count what waits in it."""
    if position.epoch == 0 or not torch.cuda.is_available():
        return _train_epoch(training, position, guard)
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            position = _train_epoch(training, position, guard)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    found.update(Path(each.filename).name for each in told if WORDS in str(each.message))
    return position


def main() -> int:
    """Train with the arguments behind the module's name; gives the program's exit code."""
    Training._train_epoch = watched
    code: int = importlib.import_module(sys.argv[1]).main(sys.argv[2:])
    print(json.dumps(found))
    return code


if __name__ == "__main__":
    sys.exit(main())
