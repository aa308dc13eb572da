"""Decides how many requests are under way at once, how long to wait, and how fast bytes may go."""

from __future__ import annotations

import time

START, FEWEST, MOST = 32, 2, 256
# How long a number of requests is watched before it is judged.
_WINDOW_S = 0.25
# After a try that gained nothing, or a store that asked for less; longer after each.
_FIRST_REST_S, _LONGEST_REST_S = 5.0, 60.0
_GAIN = 1.05
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 15.0


class Pace:
    """Doubles `limit` while that brings throughput, halves it when the store asks for less."""

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self.limit = min(START, most)
        self._bytes = 0
        self._idle_s = 0.0
        self._began = time.monotonic()
        # The limit and rate before a try of more, and whether its first window is over: what new
        # connections take into their buffers at once is no throughput.
        self._before: tuple[int, float] | None = None
        self._is_settled = False
        self._rest_s = _FIRST_REST_S
        self._rests_until = 0.0
        self._halved_at = 0.0

    def idled(self, seconds: float) -> None:
        """Count time in which every request waited for the store."""
        self._idle_s += seconds

    def did(self, count: int) -> None:
        """Count bytes that went or came."""
        self._bytes += count

    def review(self, now: float, *, is_full: bool) -> None:
        """Change the limit where a window is over; `is_full`: there is work for more requests."""
        length_s = now - self._began
        if length_s < _WINDOW_S:
            return
        rate, idle = self._bytes / length_s, self._idle_s / length_s
        self._bytes, self._idle_s, self._began = 0, 0.0, now
        if self._before is not None:
            self._judge(rate, now)
        # Without idle time the CPU is the limit, and more connections only cost more of it.
        elif is_full and idle > 0.2 and now >= self._rests_until and self.limit < self.most:
            self._before, self._is_settled = (self.limit, rate), False
            self.limit = min(self.most, self.limit * 2)

    def _judge(self, rate: float, now: float) -> None:
        assert self._before is not None
        if not self._is_settled:
            self._is_settled = True
            return
        limit, before = self._before
        self._before = None
        if rate < before * _GAIN:
            self.limit = limit
            self._rest(now)

    def throttled(self) -> None:
        """Halve the limit, once a second at most: one overload refuses many requests."""
        now = time.monotonic()
        if now - self._halved_at < 1:
            return
        self.limit = max(FEWEST, self.limit // 2)
        self._before, self._halved_at = None, now
        self._rest(now)

    def _rest(self, now: float) -> None:
        self._rests_until = now + self._rest_s
        self._rest_s = min(_LONGEST_REST_S, self._rest_s * 2)


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
    # Five milliseconds of import that a transfer without failures is spared.
    import random

    longest = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2 ** (num_failures - 1))
    return max(asked_s or 0.0, longest * random.uniform(0.5, 1.0))
