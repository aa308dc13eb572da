"""Finds the largest batch of which a device's memory holds a step, by bisection (pure)."""

from __future__ import annotations

from collections.abc import Callable

from trainer.common.errors import TrainingError

# No GPU holds more pictures of a size that networks take; of MNIST's and of features it holds more.
MOST = 1 << 14
# What makes a step of pictures take less memory.
SMALLER_PICTURES = "--precision bf16, or a smaller --image-size"


def largest_that_fits(fits: Callable[[int], bool], *, least: int, most: int = MOST) -> int | None:
    """Give the largest number from `least` to `most` that fits; None where not even the least does.

    Doubles until one does not fit, then halves what lies between; what fits also does smaller. One
    is tried where two do not fit, and not before: a batch norm may refuse to learn from one.
    """
    first = max(least, 2)
    if not fits(first):
        return least if least < first and fits(least) else None
    fitting, number = first, 2 * first
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


def largest_batch(fits: Callable[[int], bool], *, least: int, hint: str) -> int:
    """Give the most samples of which memory holds a step; raises TrainingError with `hint` below `least`."""
    found = largest_that_fits(fits, least=least)
    if found is None:
        number = f"{least} sample{'s' * (least > 1)}"
        message = f"the GPU's memory does not hold a step of {number}"
        raise TrainingError(message, hint=hint)
    return found


def found_batch(found: int, option: str, *, program: str) -> tuple[str, dict[str, object]]:
    """Give a sentence and a summary of what was found; the search may end before the memory."""
    is_bound = found == MOST
    text = f"the largest --{option.replace('_', '-')} that fits is {'at least ' * is_bound}{found}"
    return text, {"program": program, "largest_batch": found, "is_bound_of_search": is_bound}


def require_one_gpu(device: str, world_size: int) -> None:
    """Raise TrainingError where `--find-batch` would try no GPU, or several."""
    if device != "cuda" or world_size > 1:
        message = "--find-batch tries steps on one GPU"
        raise TrainingError(message, hint="one rank, and --device cuda")
