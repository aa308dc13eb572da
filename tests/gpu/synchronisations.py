"""Trains by a program, and prints where the host waited for the device within the steps.

    python -m tests.gpu.synchronisations [--tell] trainer.pytorch.resnet50 --data random ...

In the first epoch, which tries kernels and makes constants, waits are free. In the others PyTorch ends
the program at the first operation that waits (torch.cuda.set_sync_debug_mode), but within a
checkpoint, and the guard's reading of the step before, whose turns are counted; with `--tell` in front it goes on, and each file
that waits is told. Printed last, as JSON: {"steps": n, "readings": n, "files": {FILE: count}}.
"""

from __future__ import annotations

import collections
import contextlib
import importlib
import json
import os
import sys
import warnings
from collections.abc import Generator
from pathlib import Path
from typing import Any

import torch

from trainer.common.position import Position
from trainer.pytorch.guard import Guard
from trainer.pytorch.keeper import Keeper
from trainer.pytorch.loop import Training

WORDS = "called a synchronizing CUDA operation"
PYTORCH = f"{Path(torch.__file__).parent}{os.sep}"  # torchvision lies beside it
files: collections.Counter[str] = collections.Counter()
counts: collections.Counter[str] = collections.Counter()
_train_epoch = Training[Any, Any]._train_epoch
_take_step = Training[Any, Any]._take_step
_begin = Guard._begin
_save = Keeper.save


def watched(mode: str, training: Training[Any, Any], position: Position, guard: Guard) -> Position:
    """Train an epoch as it is, and let PyTorch watch what waits in it."""
    if position.epoch == 0 or not torch.cuda.is_available():
        return _train_epoch(training, position, guard)
    torch.cuda.set_sync_debug_mode(mode)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = tell
            counts["watched"] = 1
            return _train_epoch(training, position, guard)
    finally:
        counts["watched"] = 0
        torch.cuda.set_sync_debug_mode("default")


def stepped(training: Training[Any, Any], *given: Any) -> Any:
    """Take a step, and count it."""
    counts["steps"] += counts["watched"]
    return _take_step(training, *given)


def begun(guard: Guard, report: torch.Tensor) -> Any:
    """Begin the sums of a report; reading them may wait, on a stream of their own."""
    read = _begin(guard, report)

    def free() -> list[float]:
        counts["readings"] += counts["watched"]
        with unwatched():
            return read()

    return free


def saved(keeper: Keeper, position: Position) -> None:
    """Begin a checkpoint, whose copies may wait."""
    with unwatched():
        _save(keeper, position)


@contextlib.contextmanager
def unwatched() -> Generator[None]:
    """Let operations wait."""
    if not counts["watched"]:
        yield
        return
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("default")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def tell(message: Warning | str, *_: Any, **__: Any) -> None:
    """Count a wait for the innermost file that is not PyTorch's own."""
    if WORDS not in str(message):
        return
    frame = sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith((PYTORCH, warnings.__file__)):
        frame = frame.f_back
    path = Path(frame.f_code.co_filename)
    files[f"{'torchvision/' if 'torchvision' in path.parts else ''}{path.name}"] += 1


def main() -> int:
    """Train with the arguments behind the module's name; gives the program's exit code."""
    arguments = sys.argv[1:]
    mode = "error"
    if arguments[0] == "--tell":
        mode, arguments = "warn", arguments[1:]
    Training._train_epoch = lambda *given: watched(mode, *given)
    Training._take_step = stepped
    Guard._begin = begun
    Keeper.save = saved
    code: int = importlib.import_module(arguments[0]).main(arguments[1:])
    told = {"steps": counts["steps"], "readings": counts["readings"], "files": files}
    print(json.dumps(told))
    return code


if __name__ == "__main__":
    sys.exit(main())
