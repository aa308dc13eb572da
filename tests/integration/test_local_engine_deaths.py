"""Real torch, Horovod and MPI gangs of which one rank dies or stands still."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.contracts.spec import RunState
from jobs.rank.main import oom_kills
from tests.busy import Bound, limit_s
from tests.fakes.gangs import Gangs, reasons

PROGRAMS = Path(__file__).with_name("programs")
GONE_WITHIN_S, FOUND_WITHIN_S = 10.0, 5.0
HANG_S = 5.0
SCRIPTS = {"torch": "failing_ddp.py", "horovod": "failing_hvd.py", "mpi": "failing_hvd.py"}
DEATHS = {
    "exit 1": (1, "exit code 1: "),
    "exception": (1, "uncaught exception: ValueError: boom of the guilty rank (failing.py:"),
    "SIGKILL": (137, "killed by SIGKILL: killed"),
}
# Rank and size of the gangs that only `make faults` starts; tests/faults/test_rank_deaths.py has all places.
MORE = ((3, 4),)


@pytest.mark.parametrize(
    ("launcher", "way", "rank", "size"),
    [
        ("torch", "SIGKILL", 0, 2),
        ("horovod", "exception", 0, 2),
        ("mpi", "exit 1", 1, 2),
        *(
            pytest.param(*each, marks=pytest.mark.faults)
            for each in [
                ("torch", "exit 1", 0, 2),
                ("torch", "exception", 1, 2),
                ("horovod", "exit 1", 1, 2),
                ("horovod", "SIGKILL", 1, 2),
                ("mpi", "SIGKILL", 0, 2),
                *(
                    (launcher, way, *place)
                    for launcher in SCRIPTS
                    for way in DEATHS
                    for place in MORE
                ),
            ]
        ),
    ],
)
def test_death_of_one_rank_ends_the_gang_and_names_it(
    torch_gangs: Gangs, launcher: str, way: str, rank: int, size: int
) -> None:
    gangs = torch_gangs
    killed_before = oom_kills()
    handle = gangs.submit(
        ["python", SCRIPTS[launcher], way, str(rank)],
        launcher=launcher,
        code=str(PROGRAMS),
        processes_per_node=size,
    )
    gangs.wait_for_file(handle, "failed", 120)
    bound = Bound(GONE_WITHIN_S)
    status = gangs.wait(handle)
    gangs.wait_until_gone(handle)
    bound.check(status)
    exit_code, text = DEATHS[way]
    error = gangs.error(handle)
    assert (status.state, status.exit_code) == (RunState.FAILED, exit_code), status
    assert (error.rank, error.exit_code) == (rank, exit_code), error
    assert status.reason is not None
    texts = reasons(way, text, killed_before=killed_before)
    if (launcher, way) == ("mpi", "exit 1"):
        # MPI takes long to leave; mpirun then ends the guilty rank before it has.
        texts.append("left the others: all of them lost it; ")
    starts = tuple(f"rank {rank} on {error.host}: {each}" for each in texts)
    assert status.reason.startswith(starts), status.reason
    if way == "exception":
        assert error.traceback is not None
        assert error.traceback.startswith("Traceback (most recent call last):\n")
        assert error.traceback.endswith("ValueError: boom of the guilty rank")


@pytest.mark.parametrize(
    ("launcher", "way", "rank", "size"),
    [
        ("torch", "sleep", 1, 2),
        ("horovod", "SIGSTOP", 1, 2),
        *(
            pytest.param(*each, marks=pytest.mark.faults)
            for each in [
                ("torch", "SIGSTOP", 0, 2),
                ("horovod", "sleep", 0, 2),
                *(
                    (launcher, way, *place)
                    for launcher in SCRIPTS
                    for way in ("sleep", "SIGSTOP")
                    for place in MORE
                ),
            ]
        ),
    ],
)
def test_hang_of_one_rank_is_found_and_named(
    torch_gangs: Gangs, launcher: str, way: str, rank: int, size: int
) -> None:
    gangs = torch_gangs
    hang_s = limit_s(HANG_S)
    handle = gangs.submit(
        ["python", SCRIPTS[launcher], way, str(rank)],
        launcher=launcher,
        code=str(PROGRAMS),
        processes_per_node=size,
        hang_s=hang_s,
    )
    gangs.wait_for_file(handle, "failed", 120)
    bound = Bound(hang_s + FOUND_WITHIN_S)
    status = gangs.wait(handle)
    gangs.wait_until_gone(handle)
    bound.check(status)
    error = gangs.error(handle)
    assert (status.state, status.exit_code) == (RunState.FAILED, 124), status
    assert (error.rank, error.cause, error.exit_code) == (rank, "hang", 124), status.reason
    if way == "sleep":
        assert error.traceback is not None
        assert 'failing.py", line' in error.traceback
