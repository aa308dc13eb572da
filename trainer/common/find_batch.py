"""Finds the largest batch of which a device's memory holds a step, by bisection (pure)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from trainer.common.errors import TrainingError

# No GPU holds more pictures of a size that networks take; of MNIST's and of features it holds more.
MOST = 1 << 14
# How near is near enough: each further try of a batch that fills a large GPU takes seconds.
PARTS = 32
# What makes a step of pictures take less memory.
SMALLER_PICTURES = "--precision bf16, or a smaller --image-size"


class Largest(NamedTuple):
    """Hold the largest number that fitted, and the smallest that did not or lay above the search's end."""

    fitting: int
    beyond: int


def largest_that_fits(
    fits: Callable[[int], bool], *, least: int, most: int = MOST
) -> Largest | None:
    """Give about the largest number from `least` to `most` that fits; None where not even the least does.

    What fits also does smaller. Doubles until one does not fit, then halves what lies between while that is
    more than one part in `PARTS` of what fits. One is tried where two do not fit, and not before: a batch norm may refuse to learn from one.
    """
    first = max(least, 2)
    if not fits(first):
        return Largest(least, first) if least < first and fits(least) else None
    fitting, number = first, 2 * first
    while number <= most and fits(number):
        fitting, number = number, 2 * number
    beyond = min(number, most + 1)
    while beyond - fitting > max(1, fitting // PARTS):
        middle = (fitting + beyond) // 2
        if fits(middle):
            fitting = middle
        else:
            beyond = middle
    return Largest(fitting, beyond)


def largest_batch(
    fits: Callable[[int], bool], *, least: int, hint: str, say: Callable[[str], None]
) -> Largest:
    """Give about the most samples of which memory holds a step, and `say` of each try how it ended.

    Raises TrainingError with `hint` where there are none from `least` on.
    """

    def tell(number: int) -> bool:
        is_held = fits(number)
        say(f"a step of {number} {'fits' if is_held else 'does not fit'}")
        return is_held

    found = largest_that_fits(tell, least=least)
    if found is None:
        number = f"{least} sample{'s' * (least > 1)}"
        message = f"the GPU's memory does not hold a step of {number}"
        raise TrainingError(message, hint=hint)
    return found


def found_batch(found: Largest, option: str, *, program: str) -> tuple[str, dict[str, object]]:
    """Give a sentence and a summary of what was found; the search may end before the memory."""
    flag = f"--{option.replace('_', '-')}"
    fitting, beyond = found
    is_bound = beyond > MOST
    text = f"the largest {flag} that fits is {'at least ' * is_bound}{fitting}"
    if beyond > fitting + 1 and not is_bound:
        text = f"{flag} {fitting} fits, and {beyond} does not"
    told = {"largest_batch": fitting, "beyond": beyond, "is_bound_of_search": is_bound}
    return text, {"program": program, **told}


def require_one_gpu(device: str, world_size: int) -> None:
    """Raise TrainingError where `--find-batch` would try no GPU, or several."""
    if device != "cuda" or world_size > 1:
        message = "--find-batch tries steps on one GPU"
        raise TrainingError(message, hint="one rank, and --device cuda")
