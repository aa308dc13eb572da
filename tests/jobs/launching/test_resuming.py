"""`launch rerun --resume`, and what `show` and `diff` say of checkpoints, attempts and resumption."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.contracts.spec import ResumePoint, RunState
from jobs.runs.run_folder import RunEvent, append_event
from tests.fakes.launching import TIME, FakeEngine, Launching
from tests.jobs.runs.test_checkpoints import SAVED, write_checkpoint


def add_preempted(launching: Launching, *steps: int) -> str:
    run = launching.add_run(ends_as="preempted", reason="rank 0 checkpointed and left")
    for step in steps:
        write_checkpoint(launching.workspace / "runs" / run, step)
    return run


def test_resumed_run_is_the_recorded_one_from_its_newest_checkpoint(launching: Launching) -> None:
    run = add_preempted(launching, 20, 40)
    typed = launching.type("rerun", run, "--resume", "--detach")
    assert typed.code == 0
    assert f"resumes   {run} at step 40\n" in typed.err
    ((plan, _),) = FakeEngine.submitted
    assert plan.spec.resume == ResumePoint(run=run, step=40)
    shown = launching.type("show", "last")
    assert f"resumed from  {run} at step 40\n" in shown.out
    assert launching.type("show", "last", "--json").json()["resumed_from"] == {
        "run": run,
        "step": 40,
    }
    difference = launching.type("diff", run, "last", "--json").json()["differences"]
    assert difference == [{"key": "resumed from", "a": None, "b": f"{run} at step 40"}]
    again = launching.type("rerun", "last", "--detach")
    assert (
        f"warning: it started from the checkpoints of {run}, this one starts from scratch; "
        "--resume goes on\n"
    ) in again.err


def test_run_without_a_whole_checkpoint_cannot_be_resumed(launching: Launching) -> None:
    run = add_preempted(launching, 20)
    for manifest in launching.workspace.rglob("manifest.json"):
        manifest.unlink()
    typed = launching.type("rerun", run, "--resume")
    assert (typed.code, FakeEngine.submitted) == (2, [])
    assert typed.err == (
        f"error: {run} has no complete checkpoint to resume from\n\n"
        f"hint: launch rerun --env {launching.env_file} {run} starts from scratch; a checkpoint of your own format needs a "
        "manifest.json beside it (docs/run-directory.md)\n"
    )


def test_run_that_is_on_cannot_be_resumed(
    launching: Launching, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = launching.add_run(ends_as="running")
    write_checkpoint(launching.workspace / "runs" / run, 20)
    monkeypatch.setattr("jobs.runs.run_folder._is_supervised", lambda _: True)
    typed = launching.type("rerun", run, "--resume")
    assert (typed.code, FakeEngine.submitted) == (2, [])
    here = f"--env {launching.env_file}"
    assert typed.err == (
        f"error: {run} is running; it can be resumed when it is over\n\n"
        f"hint: launch wait {here} {run}, or launch cancel {here} {run}\n"
    )


def test_show_says_which_checkpoints_there_are_and_how_to_go_on(launching: Launching) -> None:
    run = add_preempted(launching, 20, 40)
    lines = launching.type("show", run).out.splitlines()
    size = sum(
        path.stat().st_size
        for path in Path(launching.workspace, "runs", run).glob("checkpoints/*40-*/*")
    )
    at = lines.index("checkpoints  2")
    assert lines[at + 1 : at + 3] == [
        f"newest       step 40, {size} B, saved {SAVED}",
        f"to go on     launch rerun {run} --resume --env {launching.env_file}",
    ]
    shown = launching.type("show", run, "--json").json()["checkpoints"]
    assert (shown["count"], shown["newest"]["step"], shown["newest"]["bytes"]) == (2, 40, size)
    assert [each["step"] for each in shown["all"]] == [40, 20]
    done = launching.add_run()
    assert launching.type("show", done, "--json").json()["checkpoints"] == {
        "count": 0,
        "newest": None,
        "all": [],
    }
    write_checkpoint(launching.workspace / "runs" / done, 60)
    assert "to go on" not in launching.type("show", done).out


def test_show_lists_attempts_where_there_was_more_than_one(launching: Launching) -> None:
    run = launching.add_run()
    assert "ATTEMPT" not in launching.type("show", run).out
    (launching.workspace / "runs" / run / "events.jsonl").unlink()
    for event in (
        RunEvent(ts=TIME, state=RunState.RUNNING, attempt=f"{run}.1"),
        RunEvent(ts=TIME, state=RunState.PREPARING, reason="rank 1 left", attempt=f"{run}.1"),
        RunEvent(ts=TIME, state=RunState.RUNNING, attempt=f"{run}.2"),
        RunEvent(ts=TIME, state=RunState.COMPLETED, exit_code=0),
    ):
        append_event(launching.workspace / "runs" / run, event)
    lines = [line.split(maxsplit=3) for line in launching.type("show", run).out.splitlines()]
    assert [f"{run}.2", TIME, TIME, "completed"] in lines
    (first, *_) = launching.type("show", run, "--json").json()["attempts"]
    assert (first["state"], first["reason"]) == ("preempted", "rank 1 left")
