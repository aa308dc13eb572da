"""Shuffles an epoch's samples, on a thread while the epoch before is trained on."""

from __future__ import annotations

import random
import threading
from concurrent.futures import Future

# Fewer are shuffled within some milliseconds.
LEAST_AHEAD = 50_000
# The order of the next epoch is begun where this share of an epoch's samples has been given out.
BEGIN_AT = 0.75

Key = tuple[int, int, int]
_begun: dict[Key, Future[list[int]]] = {}


def epoch_order(num_samples: int, *, seed: int, epoch: int) -> list[int]:
    """Give the order of an epoch's samples, which depends on seed and epoch only.

    Where `begin_order` has begun it, it waits for that alone.
    """
    begun = _begun.pop((num_samples, seed, epoch), None)
    return shuffled(num_samples, seed, epoch) if begun is None else begun.result()


def begin_order(num_samples: int, *, seed: int, epoch: int) -> None:
    """Begin an epoch's order on a thread, unless it has few samples; another begun one is dropped."""
    key = (num_samples, seed, epoch)
    if num_samples < LEAST_AHEAD or key in _begun:
        return
    _begun.clear()
    _begun[key] = made = Future[list[int]]()
    threading.Thread(
        target=lambda: made.set_result(shuffled(*key)), name="epoch-order", daemon=True
    ).start()


def shuffled(num_samples: int, seed: int, epoch: int) -> list[int]:
    """Shuffle the samples."""
    order = list(range(num_samples))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return order
