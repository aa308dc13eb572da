"""Measures how fast a store gives to one process, while enough is asked of it at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

# Of shorter times the rate is chance.
LEAST_S = 1.0


class Flow:
    """Bytes that arrive while `num_full` requests are under way, and the time of that.

    While fewer are, nobody knows whether the store or the training sets the pace.
    """

    def __init__(self, num_full: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._num_full = num_full
        self._clock = clock
        self._lock = threading.Lock()
        self._num_on = self._bytes = 0
        self._full_s = self._changed_s = 0.0

    @contextmanager
    def request(self, num_bytes: int) -> Generator[None]:
        """Count a request while it is under way, and its bytes where it succeeds."""
        self._change(1, 0)
        arrived = 0
        try:
            yield
            arrived = num_bytes
        finally:
            self._change(-1, arrived)

    def _change(self, more: int, num_bytes: int) -> None:
        with self._lock:
            now_s = self._clock()
            if self._num_on >= self._num_full:
                self._full_s += now_s - self._changed_s
                self._bytes += num_bytes
            self._num_on += more
            self._changed_s = now_s

    @property
    def bytes_per_s(self) -> float | None:
        """Give bytes/s under full load; None where full load lasted less than LEAST_S seconds."""
        with self._lock:
            return self._bytes / self._full_s if self._full_s >= LEAST_S else None
