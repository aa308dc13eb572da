"""Preemption where another program starts the ranks: mpirun ends all once one has left."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from jobs.contracts.spec import JobRetry, RunHandle, RunState
from jobs.runs.checkpoints import whole_checkpoints
from tests.busy import HANG_S, wait_until
from tests.fakes.gangs import PROGRAMS, Gangs

PROGRAM = str(PROGRAMS / "preemptible.py")
# Longer than mpirun lets a rank live once another has left.
SLOW = {"SLOW_SAVE_S": "2"}


def newest_step(handle: RunHandle) -> int:
    return whole_checkpoints(Path(handle.run_dir))[0].step


def wait_for_metrics(gangs: Gangs, handle: RunHandle) -> None:
    gangs.wait_for_file(handle, "metrics.jsonl")
    wait_until(lambda: all(gangs.texts(handle, rank) for rank in (0, 1)), HANG_S)


@pytest.mark.parametrize("rank", [0, pytest.param(1, marks=pytest.mark.faults)])
def test_mpi_rank_that_leaves_does_not_cost_the_others_their_checkpoint(
    torch_gangs: Gangs, rank: int
) -> None:
    command = ["python", PROGRAM, "40", f"{rank}:10"]
    handle = torch_gangs.submit(command, launcher="mpi", env=SLOW, retry=JobRetry(max=1))
    status = torch_gangs.wait(handle)
    assert (status.state, status.exit_code) == (RunState.COMPLETED, 0), status
    assert newest_step(handle) == 10
    starts = [text for text in torch_gangs.texts(handle, 0) if text.startswith("from")]
    assert starts == ["from step 0", "from step 10"]


@pytest.mark.parametrize("way", ["SIGTERM", "cancel"])
def test_mpi_ranks_are_asked_to_leave_and_have_time_for_it(torch_gangs: Gangs, way: str) -> None:
    handle = torch_gangs.submit(["python", PROGRAM, "100000"], launcher="mpi", env=SLOW)
    wait_for_metrics(torch_gangs, handle)
    if way == "cancel":
        torch_gangs.engine.cancel(handle)
    else:
        os.kill(max(torch_gangs.supervisors(handle)), signal.SIGTERM)
    status = torch_gangs.wait(handle)
    torch_gangs.wait_until_gone(handle)
    told = f"newest checkpoint: step {newest_step(handle)}"
    if way == "cancel":
        assert (status.state, status.reason) == (RunState.CANCELLED, told)
    else:
        assert status.state is RunState.PREEMPTED
        assert status.reason == f"its supervisor was told to end (SIGTERM); {told}"
