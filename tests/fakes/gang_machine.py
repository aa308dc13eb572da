"""Stands in for the machine under a Gang: processes that end when and if they were told to."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Collection, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.engines.local import gang
from jobs.host.processes import Process, descendants
from tests.fakes.turned_clock import TurnedClock

OWN, MAIN, COMMAND, HELPER = 100, 200, 300, 400  # the supervisor; ranks are counted from the others
LAST_WORDS_S = 0.1  # between the end of a command and that of its rank/main.py


class GangMachine:
    """Keeps a process table, a clock and what was told to whom.

    `told` are seconds since the start, the signal and the process; a group is told by its leader's id
    below zero. What was killed as a leftover is told SIGKILL.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, run_dir: Path) -> None:
        self.run_dir = run_dir
        (run_dir / "ranks").mkdir(parents=True)
        self.clock = TurnedClock(monkeypatch, gang)
        self.table: dict[int, Process] = {}
        self.add(OWN, 1)
        self.started: list[tuple[list[str], dict[str, str]]] = []
        self.told: list[tuple[float, str, int]] = []
        self._zombies: list[tuple[int, int]] = []
        self._heeds: dict[tuple[int, int], tuple[float, int]] = {}
        own_os = SimpleNamespace(
            **{
                **vars(os),
                "getpid": lambda: OWN,
                "getpgid": self._getpgid,
                "posix_spawn": self._spawn,
                "waitpid": self._waitpid,
            }
        )
        monkeypatch.setattr(gang, "os", own_os)
        for name in ("read_process", "read_table", "leftovers", "kill_leftovers", "send"):
            monkeypatch.setattr(gang, name, getattr(self, name))
        monkeypatch.setattr(gang, "send_to_group", self.send_to_group)

    # --- what a test sets up ------------------------------------------------------------------

    def command(
        self,
        rank: int,
        *,
        term_s: float | None = None,
        abort_s: float | None = None,
        main: int | None = None,
        **known: Any,
    ) -> None:
        """Have rank/main.py start its command and record it; the command heeds SIGTERM in `term_s`.

        `main` is its rank/main.py, where a launcher of its own started that.
        """
        main = MAIN + rank if main is None else main
        self.add(COMMAND + rank, main)
        self.record(rank, pid=main, child=COMMAND + rank, **known)
        if term_s is not None:
            self._heeds[main, signal.SIGTERM] = (term_s, 0)
        if abort_s is not None:
            self._heeds[-(COMMAND + rank), signal.SIGABRT] = (abort_s, signal.SIGABRT)

    def record(self, rank: int, **known: Any) -> None:
        path = self.run_dir / "ranks" / f"{rank:05d}.json"
        path.write_text(json.dumps({"rank": rank, "host": "h", **known}))

    def end(self, pid: int, status: int) -> None:
        """End a process now; those below it become the supervisor's, who is a subreaper."""
        ended = self.table.pop(pid, None)
        if ended is None:
            return
        if ended.parent == OWN:
            self._zombies.append((pid, status))
        for each in [each for each in self.table.values() if each.parent == pid]:
            self.table[each.pid] = each._replace(parent=OWN)
        if COMMAND <= pid < HELPER:  # its rank/main.py writes its last words
            self._end_later(LAST_WORDS_S, ended.parent, status)

    def wait(self, timeout_s: float) -> None:
        """Sleep until a process ends, as Wakeup.wait does."""
        self.clock.go_on(self.clock.now_s + timeout_s)

    def _end_later(self, after_s: float, pid: int, status: int) -> None:
        self.clock.at(self.clock.passed_s + after_s, lambda: self.end(pid, status))

    # --- what the gang asks the machine -------------------------------------------------------

    def read_process(self, pid: int) -> Process | None:
        return self.table.get(pid)

    def read_table(self) -> dict[int, Process]:
        return dict(self.table)

    def leftovers(
        self, root: Process, _run_dir: Path, spare: Collection[int] = ()
    ) -> list[Process]:
        return [each for each in descendants(root.pid, self.table) if each.pid not in spare]

    def kill_leftovers(
        self, root: Process, run_dir: Path, *, spare: Collection[int] = (), timeout_s: float
    ) -> None:
        for each in self.leftovers(root, run_dir, spare):
            self._tell(signal.SIGKILL, each.pid)
            self.end(each.pid, signal.SIGKILL)

    def send(self, process: Process, number: signal.Signals) -> None:
        self._tell(number, process.pid)

    def send_to_group(self, group: int, number: signal.Signals) -> None:
        self._tell(number, -group)

    def _tell(self, number: signal.Signals, whom: int) -> None:
        self.told.append((self.clock.passed_s, number.name, whom))
        if (whom, number) in self._heeds:
            after_s, status = self._heeds[whom, number]
            # A main passes it on to its command.
            pid = -whom if whom < 0 else whom - MAIN + COMMAND if MAIN <= whom < COMMAND else whom
            self._end_later(after_s, pid, status)

    def add(self, pid: int, parent: int) -> None:
        self.table[pid] = Process(pid=pid, parent=parent, state="S", cpu_s=0.0, start=1)

    def _spawn(self, _path: str, argv: list[str], env: Mapping[str, str], **_: Any) -> int:
        pid = MAIN + len(self.started)
        self.started.append((argv, dict(env)))
        self.add(pid, OWN)
        return pid

    def _waitpid(self, pid: int, options: int) -> tuple[int, int]:
        assert (pid, options) == (-1, os.WNOHANG)
        if self._zombies:
            return self._zombies.pop(0)
        if not any(each.parent == OWN for each in self.table.values()):
            raise ChildProcessError
        return 0, 0

    def _getpgid(self, pid: int) -> int:
        if pid not in self.table:
            raise ProcessLookupError
        return OWN if MAIN <= pid < COMMAND else pid
