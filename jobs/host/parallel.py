"""Runs one function on many items, several at once."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

# For work that waits for a network.
NUM_THREADS = 8
# For work that reads a disk and computes: beyond the CPUs, a disk that is far away is waited for.
_NUM_READERS = min(8, 2 + (os.cpu_count() or 1))

Item = TypeVar("Item")
Result = TypeVar("Result")


def parallel(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Do all, several at once. The first failure ends the rest."""
    if not items:
        return []
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def in_order(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    is_light: Callable[[Item], bool] = lambda _: False,
    stop: Callable[[], None] = lambda: None,
) -> Iterator[tuple[Item, Result]]:
    """Yield each item and its result in the items' order, several worked on at once.

    Takes items as results are taken: few are in memory, however many come. Light work is done
    where it stands, without a thread. After a failure, or Ctrl-C, `stop` is to end the work that
    is being done: it is waited for.
    """
    window: deque[tuple[Item, Future[Result]]] = deque()
    with ThreadPoolExecutor(_NUM_READERS) as pool:
        try:
            for item in items:
                if not window and is_light(item):
                    yield item, work(item)
                    continue
                window.append((item, pool.submit(work, item)))
                if len(window) > 2 * _NUM_READERS:
                    first, future = window.popleft()
                    yield first, future.result()
            while window:
                first, future = window.popleft()
                yield first, future.result()
        except BaseException:
            stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
