"""Begins the work on batches ahead of those that are taken, on threads of the caller's."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Protocol, TypeVar

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
    """Give what `finish` makes of each batch, in this order; what nobody takes is cancelled.

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


def _finished(begun: W, finish: Callable[[W], B]) -> B:
    for part in begun.parts:
        part.result()
    return finish(begun)
