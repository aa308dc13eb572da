"""Stands in for a module's `time`: a clock that goes on when its module sleeps or a test turns it."""

from __future__ import annotations

from types import ModuleType

import pytest


class TurnedClock:
    """A monotonic clock, and one on the wall that is `ahead_s` of it until somebody sets it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
        self.now_s = 1000.0
        self.ahead_s = 1_700_000_000.0
        for module in modules:
            monkeypatch.setattr(module, "time", self)

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return self.now_s + self.ahead_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
