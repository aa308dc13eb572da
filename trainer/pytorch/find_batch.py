"""Tries whether a GPU's memory holds a step, and tells what it does not hold."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator

import torch

from trainer.common.errors import TrainingError

# In what words cuDNN, cuBLAS and CUDA itself say that they had no memory; torch has an error of its own.
LACK = ("out of memory", "unable to find an engine", "STATUS_ALLOC_FAILED")


def is_lack(error: RuntimeError) -> bool:
    """Tell an error of too little memory on a GPU from others."""
    return isinstance(error, torch.OutOfMemoryError) or any(each in str(error) for each in LACK)


def holds(step: Callable[[int], object], number: int) -> bool:
    """Tell whether memory holds two steps of so many samples: momentum comes with the first."""
    try:
        for _ in range(2):
            step(number)
    except RuntimeError as error:
        if not is_lack(error):
            raise
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
    except RuntimeError as error:
        if not is_lack(error):
            raise
        message = f"the GPU's memory does not hold {what}"
        raise TrainingError(message, hint=hint) from None
