"""F3: preempted runs leave a checkpoint in time, are started again, and lose and repeat no step."""

from __future__ import annotations

import json
import os
import signal
import time
from datetime import datetime
from pathlib import Path

import pytest

from jobs.contracts.spec import JobRetry, Limits, ResumePoint, RunHandle, RunState
from jobs.runs.checkpoints import whole_checkpoints
from jobs.runs.outcome import attempts_of
from jobs.runs.run_folder import read_events
from tests.busy import POLL_S, Bound, limit_s, wait_until
from tests.campaign import campaign
from tests.fakes.gangs import PROGRAMS, Gangs

PROGRAM = str(PROGRAMS / "preemptible.py")
CHECKPOINT_WITHIN_S = 10.0
ONCE = JobRetry(max=1, on=("preemption",))


def expected(num_steps: int) -> str:
    value = 1
    for step in range(1, num_steps + 1):
        value = (value * 6364136223846793005 + step) % (1 << 64)
    return f"{num_steps} {value}"


def steps(handle: RunHandle) -> list[int]:
    lines = Path(handle.run_dir, "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["step"] for line in lines]


def result(handle: RunHandle) -> str:
    return Path(handle.run_dir, "outputs", "value.txt").read_text()


def wait_until_started(gangs: Gangs, handle: RunHandle) -> None:
    bound = Bound(60)
    while not all(gangs.texts(handle, rank) for rank in range(2)):
        status = gangs.engine.store.status(handle)
        bound.check(status)
        assert not status.state.is_terminal()
        time.sleep(POLL_S)


def leave_by_itself(gangs: Gangs, rank: int, step: int) -> RunHandle:
    """A rank is asked to leave by its machine; the run goes on by itself, and ends as if not."""
    handle = gangs.submit(["python", PROGRAM, "60", f"{rank}:{step}"], retry=ONCE)
    status = gangs.wait(handle)
    assert (status.state, status.exit_code) == (RunState.COMPLETED, 0), status
    assert steps(handle) == list(range(1, 61))
    assert result(handle) == expected(60)
    return handle


@pytest.mark.parametrize(("rank", "step"), [(0, 7), pytest.param(1, 20, marks=pytest.mark.faults)])
def test_preempted_gang_is_started_again_and_repeats_no_step(
    gangs: Gangs, rank: int, step: int
) -> None:
    handle = leave_by_itself(gangs, rank, step)
    events = read_events(Path(handle.run_dir))
    assert [event.state for event in events] == [
        *("queued", "preparing", "running", "preparing", "running", "completed"),
    ]
    first, second = attempts_of(handle.id, events)
    assert (first.name, first.state) == (f"{handle.id}.1", RunState.PREEMPTED)
    assert (second.name, second.state) == (f"{handle.id}.2", RunState.COMPLETED)
    assert first.reason == (
        f"rank {rank} left: Azure's scheduled event Preempt; checkpoint of step {step} is kept"
    )
    for each in (0, 1):  # the second attempt's lines follow the first one's
        starts = [text for text in gangs.texts(handle, each) if text.startswith("from step")]
        assert starts == ["from step 0", f"from step {step}"]
    kept = sorted(path.name for path in Path(handle.run_dir, "attempts", "1").glob("*.json"))
    assert kept == ["00000.json", "00001.json"]


@pytest.mark.faults
def test_preempted_gang_is_not_started_more_often_than_the_job_says(gangs: Gangs) -> None:
    handle = gangs.submit(["python", PROGRAM, "60", "0:5", "1:9", "0:12"], retry=ONCE)
    status = gangs.wait(handle)
    assert (status.state, status.exit_code) == (RunState.PREEMPTED, 75)
    assert steps(handle) == list(range(1, 10))
    events = read_events(Path(handle.run_dir))
    assert [each.state for each in attempts_of(handle.id, events)] == ["preempted"] * 2
    assert [event.state.is_terminal() for event in events].count(True) == 1


@pytest.mark.faults
@pytest.mark.parametrize("retry", [JobRetry(), JobRetry(max=3, on=("node_failure",))])
def test_preempted_gang_stays_so_where_the_job_wants_no_other_attempt(
    gangs: Gangs, retry: JobRetry
) -> None:
    handle = gangs.submit(["python", PROGRAM, "60", "1:5"], retry=retry)
    assert gangs.wait(handle).state is RunState.PREEMPTED
    assert len(attempts_of(handle.id, read_events(Path(handle.run_dir)))) == 1


def end_supervisor(gangs: Gangs, handle: RunHandle) -> None:
    """SIGTERM to the supervisor of a running gang, which leaves a checkpoint in time."""
    wait_until_started(gangs, handle)
    os.kill(max(gangs.supervisors(handle)), signal.SIGTERM)
    wait_until(lambda: whole_checkpoints(Path(handle.run_dir)), CHECKPOINT_WITHIN_S)


def test_who_wants_the_machine_back_gets_it_and_no_other_attempt(gangs: Gangs) -> None:
    handle = gangs.submit(["python", PROGRAM, "100000"], retry=JobRetry(max=5))
    end_supervisor(gangs, handle)
    status = gangs.wait(handle)
    gangs.wait_until_gone(handle)
    step = whole_checkpoints(Path(handle.run_dir))[0].step
    assert (status.state, status.exit_code) == (RunState.PREEMPTED, 75)
    told = f"its supervisor was told to end (SIGTERM); newest checkpoint: step {step}"
    assert status.reason == told
    assert len(attempts_of(handle.id, read_events(Path(handle.run_dir)))) == 1


@pytest.mark.faults
def test_gang_that_has_saved_but_takes_too_long_to_leave_was_preempted_all_the_same(
    gangs: Gangs,
) -> None:
    handle = gangs.submit(["python", PROGRAM, "100000"], env={"SLOW_EXIT_S": "60"})
    end_supervisor(gangs, handle)
    status = gangs.wait(handle)
    step = whole_checkpoints(Path(handle.run_dir))[0].step
    told = f"its supervisor was told to end (SIGTERM); newest checkpoint: step {step}"
    assert (status.state, status.reason) == (RunState.PREEMPTED, told)


def test_cancelled_gang_has_time_for_a_checkpoint_and_is_not_started_again(gangs: Gangs) -> None:
    handle = gangs.submit(["python", PROGRAM, "100000"], retry=JobRetry(max=5))
    wait_until_started(gangs, handle)
    gangs.engine.cancel(handle)
    status = gangs.wait(handle)
    step = whole_checkpoints(Path(handle.run_dir))[0].step
    assert (status.state, status.exit_code) == (RunState.CANCELLED, 103)
    assert status.reason == f"newest checkpoint: step {step}"
    assert len(attempts_of(handle.id, read_events(Path(handle.run_dir)))) == 1


@pytest.mark.faults
def test_wall_clock_limit_leaves_time_for_a_checkpoint_and_counts_all_attempts(
    gangs: Gangs,
) -> None:
    # Holds two starts of Python, 150 steps of a hundredth of a second and a checkpoint.
    wall_clock_s = limit_s(4.0)
    limits = Limits(wall_clock_s=wall_clock_s, hang_s=600.0)
    program = ["python", PROGRAM, "100000", "1:150"]
    handle = gangs.submit(program, retry=JobRetry(max=9), limits=limits)
    status = gangs.wait(handle, wall_clock_s + 60)
    assert (status.state, status.exit_code) == (RunState.FAILED, 124)
    assert [each.step for each in whole_checkpoints(Path(handle.run_dir))][-1] == 150
    assert len(whole_checkpoints(Path(handle.run_dir))) == 2
    # The second attempt had only what the first one left it.
    began, ended = (
        datetime.fromisoformat(each.ts) for each in read_events(Path(handle.run_dir))[-2:]
    )
    assert (ended - began).total_seconds() < wall_clock_s


def test_resumed_run_goes_on_from_the_other_s_checkpoint_and_leaves_it_alone(
    gangs: Gangs,
) -> None:
    first = gangs.submit(["python", PROGRAM, "60", "1:25"])
    assert gangs.wait(first).state is RunState.PREEMPTED
    before = whole_checkpoints(Path(first.run_dir))
    point = ResumePoint(run=first.id, step=25)
    second = gangs.submit(["python", PROGRAM, "60"], resume=point)
    assert gangs.wait(second).state is RunState.COMPLETED
    assert steps(second) == list(range(26, 61))
    assert result(second) == expected(60)
    assert gangs.engine.store.record(second).plan.spec.resume == point
    assert whole_checkpoints(Path(first.run_dir)) == before


@pytest.mark.faults
def test_gang_of_which_one_rank_died_is_not_given_the_time_for_a_checkpoint(
    gangs: Gangs,
) -> None:
    # Rank 0 would take longer for its checkpoint than the others have once one has died.
    env = {"SLOW_SAVE_S": "60"}
    handle = gangs.submit(["python", PROGRAM, "100000"], env=env)
    wait_until_started(gangs, handle)
    report = json.loads(Path(handle.run_dir, "ranks", "00001.json").read_text())
    bound = Bound(CHECKPOINT_WITHIN_S)
    os.kill(report["child"], signal.SIGKILL)
    status = gangs.wait(handle)
    gangs.wait_until_gone(handle)
    bound.check(status)
    assert (status.state, status.exit_code) == (RunState.FAILED, 137)
    assert whole_checkpoints(Path(handle.run_dir)) == []


# --- the campaign of `make faults` -----------------------------------------------------------


@pytest.mark.faults
@pytest.mark.timeout(1800)
def test_twenty_gangs_whose_machine_is_wanted_back_leave_a_checkpoint_in_time(
    gangs: Gangs,
) -> None:
    survived = 0
    for _ in range(20):
        handle = gangs.submit(["python", PROGRAM, "100000"])
        end_supervisor(gangs, handle)
        state = gangs.wait(handle).state
        gangs.wait_until_gone(handle)
        survived += state is RunState.PREEMPTED
    campaign("F3 SIGTERM to the supervisor", tried=20, survived=survived)
    assert survived == 20


@pytest.mark.faults
@pytest.mark.timeout(1800)
def test_twenty_gangs_that_leave_by_themselves_go_on_and_lose_nothing(gangs: Gangs) -> None:
    survived = 0
    try:
        for number in range(20):
            leave_by_itself(gangs, number % 2, 3 * number + 1)
            survived += 1
    finally:
        campaign("F3 ranks that leave with exit code 75", tried=20, survived=survived)
