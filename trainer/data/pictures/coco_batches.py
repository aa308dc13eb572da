"""Orders pictures into global batches of one orientation each, alike at any world size.

A batch is padded to its largest picture: wide ones beside tall ones would be a third padding.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence


def count_batches(is_wide: Sequence[bool], batch_size: int) -> int:
    """Give the number of batches of every epoch: only whole ones."""
    num_wide = sum(is_wide)
    return num_wide // batch_size + (len(is_wide) - num_wide) // batch_size


def grouped_batches(
    is_wide: Sequence[bool], batch_size: int, *, seed: int, epoch: int
) -> Iterator[list[int]]:
    """Yield the epoch's global batches, each as soon as the shuffled order has filled it.

    The order depends on seed and epoch only. What fills no batch is left out, other pictures each
    epoch; no picture comes twice.
    """
    order = list(range(len(is_wide)))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    filling: dict[bool, list[int]] = {True: [], False: []}
    for index in order:
        batch = filling[is_wide[index]]
        batch.append(index)
        if len(batch) == batch_size:
            yield batch
            filling[is_wide[index]] = []


def is_flipped(index: int, *, seed: int, epoch: int) -> bool:
    """Tell whether the picture is mirrored in this epoch: every second one is."""
    return random.Random(f"{seed}/{epoch}/{index}").random() < 0.5
