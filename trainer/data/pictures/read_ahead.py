"""Starts work on batches before they are taken, on the caller's threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Protocol, TypeVar

# Samples that are announced before they are begun: more than a window of shards has, so that the
# next one is fetched while this one is trained on. Who fetches decides how much of it at a time.
NUM_ANNOUNCED = 1 << 14
# Batches that are decoded while one is trained on: enough to outlast a slow file or two.
NUM_AHEAD = 3


class Begun(Protocol):
    """A batch under way."""

    @property
    def parts(self) -> Sequence[Future[None]]:
        """The threads' parts of it."""
        ...


W = TypeVar("W", bound=Begun)
B = TypeVar("B")


def read_ahead(
    order: Iterable[Sequence[int]],
    begin: Callable[[Sequence[int]], W],
    finish: Callable[[W], B],
) -> Iterator[B]:
    """Yield `finish` of each batch, in this order; batches that nobody takes are cancelled.

    Raises what a part raised.
    """
    waiting: deque[W] = deque()
    try:
        for samples in order:
            waiting.append(begin(samples))
            if len(waiting) > NUM_AHEAD:
                yield _finished(waiting.popleft(), finish)
        while waiting:
            yield _finished(waiting.popleft(), finish)
    finally:
        for begun in waiting:
            for part in begun.parts:
                part.cancel()


def announced(
    order: Iterable[Sequence[int]], announce: Callable[[Sequence[int]], None]
) -> Iterator[Sequence[int]]:
    """Give the batches as they come, each once NUM_ANNOUNCED samples behind it are known."""
    waiting: deque[Sequence[int]] = deque()
    num_waiting = 0
    for samples in order:
        announce(samples)
        waiting.append(samples)
        num_waiting += len(samples)
        while num_waiting - len(waiting[0]) >= NUM_ANNOUNCED:
            num_waiting -= len(waiting[0])
            yield waiting.popleft()
    yield from waiting


def _finished(begun: W, finish: Callable[[W], B]) -> B:
    for part in begun.parts:
        part.result()
    return finish(begun)
