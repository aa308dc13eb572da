"""Does the same work on many items, several at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

NUM_THREADS = 8

Item = TypeVar("Item")
Result = TypeVar("Result")


def parallel(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    done: Callable[[Item], None] = lambda _: None,
) -> list[Result]:
    """Do all, several at once; `done` hears of each. The first failure ends the rest."""
    if not items:
        return []
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        futures = {pool.submit(work, item): item for item in items}
        try:
            for future in as_completed(futures):
                future.result()
                done(futures[future])
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return [future.result() for future in futures]
