"""A supervisor's sleep: what wakes it, how long it lasts at most, and who asked it to end the run."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.engines.local import wakeup
from jobs.engines.local.wakeup import LONGEST_WAIT_S, Interrupted, Wakeup
from jobs.runs import supervision

HANDLED = (signal.SIGCHLD, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


@pytest.fixture(autouse=True)
def _own_handlers() -> Iterator[None]:
    """Give the process its own handlers back."""
    before = {number: signal.getsignal(number) for number in HANDLED}
    previous = signal.set_wakeup_fd(-1)
    yield
    os.close(signal.set_wakeup_fd(previous))
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def sleeper(tmp_path: Path) -> Wakeup:
    return Wakeup(tmp_path, os.getppid())


@pytest.fixture
def polled_ms(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each sleep would have been."""
    asked: list[float] = []

    class Poller:
        def register(self, _fd: int, _events: int) -> None:
            pass

        def poll(self, timeout_ms: float) -> list[Any]:
            asked.append(timeout_ms)
            return []

    monkeypatch.setattr(wakeup.select, "poll", Poller)
    return asked


@pytest.mark.parametrize(
    ("timeout_s", "expected_s"),
    [(None, LONGEST_WAIT_S), (1e12, LONGEST_WAIT_S), (2.5, 2.5), (0.0, 0.0), (-3.0, 0.0)],
)
def test_sleep_is_no_longer_than_poll_can_count_and_never_without_end(
    sleeper: Wakeup, polled_ms: list[float], timeout_s: float | None, expected_s: float
) -> None:
    sleeper.wait(timeout_s)
    assert polled_ms == [expected_s * 1000]
    assert LONGEST_WAIT_S * 1000 < 2**31


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGCHLD, signal.SIGTERM])
def test_signal_that_came_before_the_sleep_ends_it_and_only_this_one(
    sleeper: Wakeup, number: signal.Signals
) -> None:
    os.kill(os.getpid(), number)
    sleeper.wait()  # a test that sleeps on is ended by the suite's own limit
    assert not _would_wake(sleeper)


def _would_wake(sleeper: Wakeup) -> bool:
    poller = select.poll()
    poller.register(sleeper._read, select.POLLIN)
    return bool(poller.poll(0))


def test_flood_of_signals_fills_no_pipe(sleeper: Wakeup) -> None:
    for _ in range(70_000):
        signal.raise_signal(signal.SIGUSR1)
    sleeper.wait()
    sleeper.check()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_terminal_that_goes_away_or_is_interrupted_is_nobodys_request(
    sleeper: Wakeup, number: signal.Signals
) -> None:
    os.kill(os.getpid(), number)
    sleeper.check()
    assert not _would_wake(sleeper)


def test_file_that_can_be_read_ends_the_sleep(sleeper: Wakeup) -> None:
    outlet, inlet = os.pipe()
    os.write(inlet, b"x")
    sleeper.wait_interruptibly(None, outlet)
    os.close(outlet)
    os.close(inlet)


def interrupted(sleeper: Wakeup) -> tuple[str, str]:
    with pytest.raises(Interrupted) as raised:
        sleeper.wait_interruptibly()
    return raised.value.cause, raised.value.reason


def test_wish_for_a_cancellation_is_met_before_the_sleep(sleeper: Wakeup, tmp_path: Path) -> None:
    supervision.ask_to_cancel(tmp_path)
    assert interrupted(sleeper) == ("cancel", "cancelled")


def test_request_to_end_is_the_watchers_or_says_that_it_is_gone(
    sleeper: Wakeup, tmp_path: Path
) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    assert interrupted(sleeper) == ("signal", "its supervisor was told to end (SIGTERM)")
    os.close(signal.set_wakeup_fd(-1))
    orphaned = Wakeup(tmp_path, os.getppid() + 1)
    orphaned.check()
    os.kill(os.getpid(), signal.SIGTERM)
    assert interrupted(orphaned) == ("watcher", "its watcher was killed")


def test_who_gave_the_run_up_is_told_before_who_ended_its_supervisor(
    sleeper: Wakeup, tmp_path: Path
) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    supervision.ask_to_cancel(tmp_path)
    assert interrupted(sleeper) == ("cancel", "cancelled")


@pytest.mark.parametrize("how", ["wish", "SIGTERM"])
def test_request_that_comes_during_the_sleep_is_met_after_it(
    sleeper: Wakeup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    def ask(*_: object) -> None:
        if how == "wish":
            supervision.ask_to_cancel(tmp_path)
        else:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(sleeper, "wait", ask)
    assert interrupted(sleeper)[0] == ("cancel" if how == "wish" else "signal")


def test_plain_sleep_is_not_ended_by_a_request(sleeper: Wakeup, tmp_path: Path) -> None:
    """The gang that is being ended is waited for with it."""
    supervision.ask_to_cancel(tmp_path)
    os.kill(os.getpid(), signal.SIGTERM)
    sleeper.wait(0.0)
