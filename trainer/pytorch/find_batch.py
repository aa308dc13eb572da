"""Finds the largest batch of which a device's memory holds a step, by trying steps."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator

import torch

from trainer.common.errors import TrainingError

# No GPU holds more pictures of a size that networks take.
MOST = 1 << 14


def largest_that_fits(fits: Callable[[int], bool], *, least: int, most: int = MOST) -> int | None:
    """Give the largest number from `least` to `most` that fits; None where not even the least does.

    Doubles until one does not fit, then halves what lies between; what fits also does smaller.
    """
    if not fits(least):
        return None
    fitting, number = least, 2 * least
    while number <= most and fits(number):
        fitting, number = number, 2 * number
    beyond = min(number, most + 1)
    while beyond - fitting > 1:
        middle = (fitting + beyond) // 2
        if fits(middle):
            fitting = middle
        else:
            beyond = middle
    return fitting


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


def find_batch(step: Callable[[int], object], *, least: int) -> int:
    """Give the most samples of which memory holds a step; raises TrainingError below `least`."""
    found = largest_that_fits(lambda number: holds(step, number), least=least)
    if found is None:
        message = f"the GPU's memory does not hold a step of {least} samples"
        raise TrainingError(message, hint="--precision bf16, or a smaller --image-size")
    return found


@contextlib.contextmanager
def memory_told(what: str, *, hint: str = "a smaller batch") -> Generator[None]:
    """Raise TrainingError, which says what a GPU's memory does not hold, in place of PyTorch's error."""
    try:
        yield
    except torch.OutOfMemoryError:
        message = f"the GPU's memory does not hold {what}"
        raise TrainingError(message, hint=hint) from None
