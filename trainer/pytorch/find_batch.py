"""Tries whether a GPU's memory holds a step, and tells what it does not hold."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator

import torch

from trainer.common.errors import TrainingError


def holds(step: Callable[[int], object], number: int) -> bool:
    """Tell whether memory holds two steps of so many samples: momentum comes with the first."""
    try:
        for _ in range(2):
            step(number)
    except torch.OutOfMemoryError:
        fits = False
    else:
        fits = True
    # Not within the handler, whose traceback holds on to what the step had.
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    return fits


@contextlib.contextmanager
def memory_told(what: str, *, hint: str) -> Generator[None]:
    """Raise TrainingError, which says what a GPU's memory does not hold, in place of PyTorch's error."""
    try:
        yield
    except torch.OutOfMemoryError:
        message = f"the GPU's memory does not hold {what}"
        raise TrainingError(message, hint=hint) from None
