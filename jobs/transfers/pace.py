"""Decides how many requests are under way at once, how long to wait, and how fast bytes may go."""

from __future__ import annotations

import random
import time

START, FEWEST, MOST = 32, 2, 256
# How long one number of requests is watched before another is tried.
_WINDOW_S = 0.25
# After a try that gained nothing, or a store that asked for less.
_REST_S = 5.0
_GAIN = 1.05
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 15.0


class Pace:
    """Grows `limit` while that brings throughput, halves it when the store asks for less."""

    def __init__(self) -> None:
        self.limit = START
        self._window_ends = time.monotonic() + _WINDOW_S
        self._rests_until = 0.0
        self._work = 0
        self._idle_s = 0.0
        self._rate = 0.0
        self._before: int | None = None
        self._halved_at = 0.0

    def idled(self, seconds: float) -> None:
        """Count time in which every request waited for the store."""
        self._idle_s += seconds

    def did(self, work: int) -> None:
        """Count work done, in bytes."""
        self._work += work

    def review(self, now: float, *, is_full: bool) -> None:
        """Change the limit where a window is over; `is_full`: there is work for more requests."""
        if now < self._window_ends:
            return
        length_s = now - self._window_ends + _WINDOW_S
        rate, idle = self._work / length_s, self._idle_s / length_s
        self._work, self._idle_s, self._window_ends = 0, 0.0, now + _WINDOW_S
        if self._before is not None and rate < self._rate * _GAIN:
            self.limit, self._before = self._before, None
            self._rests_until = now + _REST_S
            return
        self._before = None
        # Without idle time the CPU is the limit, and more connections only cost more of it.
        if is_full and idle > 0.2 and now >= self._rests_until and self.limit < MOST:
            self._before, self._rate = self.limit, rate
            self.limit = min(MOST, self.limit * 2)

    def throttled(self) -> None:
        """Halve the limit, once a second at most: one overload refuses many requests."""
        now = time.monotonic()
        self._before = None
        self._rests_until = now + _REST_S
        if now - self._halved_at >= 1:
            self.limit = max(FEWEST, self.limit // 2)
            self._halved_at = now


class Bandwidth:
    """Spreads bytes over time so that they never pass a rate."""

    def __init__(self, bytes_per_s: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at = time.monotonic()

    def take(self, count: int) -> float:
        """Give the seconds to wait before so many bytes go; 0.0 for none."""
        now = time.monotonic()
        wait_s = max(0.0, self._free_at - now)
        self._free_at = max(self._free_at, now) + count / self._bytes_per_s
        return wait_s


def wait_s(num_failures: int, asked_s: float | None) -> float:
    """How long to wait before the next try; at least what the store asked for, never in step."""
    longest = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2 ** (num_failures - 1))
    return max(asked_s or 0.0, longest * random.uniform(0.5, 1.0))
