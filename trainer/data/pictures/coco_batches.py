"""Orders pictures into global batches of one orientation each, alike at any world size.

A batch is padded to its largest picture: wide ones beside tall ones would be a third padding.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from trainer.common.epoch_order import BEGIN_AT, begin_order, epoch_order


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
    order = epoch_order(len(is_wide), seed=seed, epoch=epoch)
    filling: dict[bool, list[int]] = {True: [], False: []}
    for place, index in enumerate(order):
        if place == int(BEGIN_AT * len(order)):
            begin_order(len(order), seed=seed, epoch=epoch + 1)
        batch = filling[is_wide[index]]
        batch.append(index)
        if len(batch) == batch_size:
            yield batch
            filling[is_wide[index]] = []


def is_flipped(index: int, *, seed: int, epoch: int) -> bool:
    """Tell whether the picture is mirrored in this epoch: every second one is."""
    return random.Random(f"{seed}/{epoch}/{index}").random() < 0.5
