"""Stacks of many processes take no longer than those of one that does not answer."""

from __future__ import annotations

import os
import subprocess
import threading

import pytest

from jobs.host import python_stacks
from jobs.host.parallel import NUM_THREADS
from jobs.host.python_stacks import TIMEOUT_S, read_stacks
from tests.busy import HANG_S


def test_processes_that_do_not_answer_take_one_timeout_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [100.0]
    timeouts: list[float] = []
    all_ask = threading.Barrier(NUM_THREADS)

    def run(argv: list[str], *, timeout: float, **_: object) -> None:
        timeouts.append(timeout)
        all_ask.wait(HANG_S)
        now_s[0] = max(now_s[0], 100.0 + TIMEOUT_S)
        raise subprocess.TimeoutExpired(argv, timeout)

    monkeypatch.setattr(python_stacks.time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(python_stacks.subprocess, "run", run)
    monkeypatch.setattr(python_stacks, "_is_python", lambda _: True)
    pids = [os.getpid() * 100 + number for number in range(3 * NUM_THREADS)]
    found = read_stacks(pids)
    assert timeouts == [TIMEOUT_S] * NUM_THREADS
    assert list(found) == pids
    said = list(found.values())
    assert said.count("it did not answer within 2 s") == NUM_THREADS
    late = "the others took the 2 s that there are for all; ask again"
    assert said.count(late) == 2 * NUM_THREADS
