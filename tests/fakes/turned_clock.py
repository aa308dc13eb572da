"""Stands in for a module's `time`: a clock that goes on when its module sleeps or a test turns it."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest


class TurnedClock:
    """A monotonic clock, and one on the wall that is `ahead_s` of it until somebody sets it.

    While it goes on, the steps of a script are taken, each `at` its time: seconds since the start, as
    `passed_s` is.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
        self.now_s = self._began_s = 1000.0
        self.ahead_s = 1_700_000_000.0
        self._script: list[tuple[float, Callable[[], object]]] = []
        for module in modules:
            monkeypatch.setattr(module, "time", self)

    @property
    def passed_s(self) -> float:
        return round(self.now_s - self._began_s, 6)

    def at(self, when_s: float, step: Callable[[], object]) -> None:
        self._script.append((self._began_s + when_s, step))
        self._script.sort(key=lambda each: each[0])

    def go_on(self, until_s: float) -> bool:
        """Go on to the script's next step, and take it; False if none is due until then."""
        if not self._script or self._script[0][0] > until_s:
            assert until_s < float("inf"), "nothing is left that would end the wait"
            self.now_s = round(until_s, 6)  # many short sleeps are one long one
            return False
        self.now_s, step = self._script.pop(0)
        step()
        return True

    # --- as the module ------------------------------------------------------------------------

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return self.now_s + self.ahead_s

    def sleep(self, seconds: float) -> None:
        until_s = round(self.now_s + seconds, 6)
        while self.go_on(until_s):
            pass
