"""`launch fetch --follow`, as it is typed: it copies until the run is over."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobs.commands import fetch
from jobs.contracts.spec import RunHandle, RunState
from jobs.runs.run_folder import RunEvent, append_event
from jobs.runs.supervision import take_lock
from tests.fakes.launching import FakeEngine, Launching


def test_fetch_follows_a_run_and_copies_once_more_after_its_end(
    launching: Launching, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = launching.add_run(ends_as="running")
    run_dir = launching.workspace / "runs" / run
    seen: list[str] = []

    def copy(_engine: FakeEngine, handle: RunHandle, into: Path) -> Path:
        seen.append(f"{handle.id} to {into}")
        return into

    def end(pause_s: float) -> None:
        seen.append(f"pause of {pause_s} s")
        append_event(run_dir, RunEvent(ts="2026-01-02T03:05:00Z", state=RunState.COMPLETED))

    monkeypatch.setattr(FakeEngine, "fetch", copy)
    monkeypatch.setattr(fetch.time, "sleep", end)
    # A run that nobody looks after would be `lost`, so its lock is held here.
    lock = take_lock(run_dir)
    try:
        once = launching.type("fetch", run, "--into", "here")
        followed = launching.type("fetch", run, "--into", "here", "--follow")
    finally:
        os.close(lock)
    hint = f"{run} is still running; type it again later for the rest, or add --follow\n"
    assert (once.code, once.out, once.err) == (0, "here\n", hint)
    assert (followed.code, followed.out, followed.err) == (0, "here\n", "")
    copied = f"{run} to here"
    assert seen == [copied, copied, "pause of 2.0 s", copied]


def test_fetch_says_the_state_of_a_run_that_has_not_begun(
    launching: Launching, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = launching.add_run(ends_as="queued")
    monkeypatch.setattr(FakeEngine, "fetch", lambda _engine, _handle, into: into)
    lock = take_lock(launching.workspace / "runs" / run)
    try:
        typed = launching.type("fetch", run)
    finally:
        os.close(lock)
    hint = f"{run} is still queued; type it again later for the rest, or add --follow\n"
    assert (typed.code, typed.err) == (0, hint)
