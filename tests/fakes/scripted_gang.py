"""Stands in for a Gang: ranks end as a script says, by a clock that goes on while their run waits."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import structs

from jobs.runs.failure import RankReport
from tests.fakes.turned_clock import TurnedClock


class ScriptedGang:
    """The ranks, what was done to them and when (`done`), and the Wakeup that their run waits with.

    Times are seconds since the clock's start; those of reports are the clock's own.
    """

    def __init__(self, clock: TurnedClock, size: int) -> None:
        self._clock = clock
        self.ranks = [RankReport(rank=rank, host="h") for rank in range(size)]
        self.awaited = set(range(size))
        self.is_helper_lost = False
        self.has_failure = False
        self.done: list[tuple[float, str]] = []
        self.waits_s: list[float] = []
        self.environment: Mapping[str, str] = {}

    def ends(self, rank: int, when_s: float, **known: Any) -> None:
        """Have a rank end then."""

        def end() -> None:
            times = {"exited_s": self._clock.now_s, "ended_s": self._clock.now_s}
            self.ranks[rank] = structs.replace(self.ranks[rank], **times, **known)
            self.has_failure = self.has_failure or self.ranks[rank].has_failed

        self._clock.at(when_s, end)

    # --- as a Gang ----------------------------------------------------------------------------

    @property
    def are_living(self) -> bool:
        return any(each.ended_s is None for each in self.ranks if each.rank in self.awaited)

    def start(self, interpreter: str, environment: Mapping[str, str], _rendezvous: object) -> None:
        self.done.append((self._clock.passed_s, f"start {interpreter}"))
        self.environment = environment

    def reap(self) -> None:
        pass

    def reports(self) -> list[RankReport]:
        return list(self.ranks)

    def stop(self, grace_s: float) -> None:
        self.done.append((self._clock.passed_s, f"stop {grace_s:g}"))
        self._end(signal=15)

    def abort(self, grace_s: float) -> None:
        self.done.append((self._clock.passed_s, f"abort {grace_s:g}"))
        self._end(signal=6)

    def _end(self, signal: int) -> None:
        now_s = self._clock.now_s
        told: dict[str, Any] = {"stopped_s": now_s, "exited_s": now_s, "ended_s": now_s}
        self.ranks = [
            each if each.ended_s else structs.replace(each, signal=signal, **told)
            for each in self.ranks
        ]

    # --- as a Wakeup --------------------------------------------------------------------------

    def wait_interruptibly(self, timeout_s: float) -> None:
        """Go on to the script's next step, or to the end of the wait."""
        assert timeout_s > 0, "it would wait in a busy loop"
        self.waits_s.append(round(timeout_s, 6))
        self._clock.go_on(self._clock.now_s + timeout_s)


class WrittenFiles:
    """Files of a run that its ranks write, with the times of the clock."""

    def __init__(self, run_dir: Path, clock: TurnedClock) -> None:
        self._run_dir, self._clock = run_dir, clock

    def write(self, name: str) -> None:
        path = self._run_dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(b"x")
        os.utime(path, (self._clock.time(), self._clock.time()))
