"""One rank of a gang dies in nine ways: the others go, and the run says who it was and why."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from jobs.contracts.spec import RunState
from jobs.rank.main import oom_kills
from jobs.runs.run_folder import read_events
from tests.busy import Bound, limit_s
from tests.fakes.gangs import PROGRAMS, Gangs, reasons

LOCKSTEP = str(PROGRAMS / "lockstep.py")
GONE_WITHIN_S = 10.0
HANG_S = 2.0

# way -> exit code, and what the summary's first line says after "rank N on HOST: "
DEATHS = {
    "exit 1": (1, "exit code 1: "),
    "exit 3": (3, "exit code 3: "),
    "exception": (1, "uncaught exception: ValueError: boom of the guilty rank (lockstep.py:"),
    "SIGKILL": (137, "killed by SIGKILL: killed"),
    "SIGTERM": (143, "killed by SIGTERM: terminated"),
    "SIGSEGV": (139, "killed by SIGSEGV: segmentation fault (__init__.py:"),
    "memory limit": (1, "out of memory: MemoryError (lockstep.py:"),
}
HANGS = {
    "sleep": "it sleeps while the others wait for it",
    "spin": "it is busy while the others wait for it",
    "SIGSTOP": "its process is stopped (SIGSTOP)",
    "exit 0": "it ended early with exit code 0, and the others wait for it",
    "close": "it closed its output, and the others wait",
}


def check_death(gangs: Gangs, way: str, rank: int, size: int, **changes: object) -> None:
    exit_code, text = DEATHS[way]
    killed_before = oom_kills()
    handle = gangs.submit(["python", LOCKSTEP, way, str(rank)], processes_per_node=size, **changes)
    gangs.wait_for_file(handle, "failed")
    bound = Bound(GONE_WITHIN_S)
    status = gangs.wait(handle)
    gangs.wait_until_gone(handle)
    bound.check(status)
    error = gangs.error(handle)
    assert (status.state, status.exit_code) == (RunState.FAILED, exit_code), status
    assert (error.rank, error.exit_code) == (rank, exit_code)
    assert status.reason is not None
    texts = reasons(way, text, killed_before=killed_before)
    starts = tuple(f"rank {rank} on {error.host}: {each}" for each in texts)
    assert status.reason.startswith(starts), status.reason
    if way in ("exception", "memory limit"):
        assert error.traceback is not None
        assert error.traceback.startswith("Traceback (most recent call last):\n")
        assert error.traceback.splitlines()[-1].startswith(("ValueError: boom", "MemoryError"))
    if way == "SIGSEGV":
        assert error.traceback is not None
        assert error.traceback.startswith("Fatal Python error: Segmentation fault")
    events = read_events(Path(handle.run_dir))
    assert [each.state.is_terminal() for each in events].count(True) == 1


@pytest.mark.parametrize(
    ("way", "rank", "size"),
    [
        ("exit 1", 1, 2),
        ("exit 3", 0, 3),
        ("exception", 2, 4),
        ("SIGKILL", 1, 3),
        ("SIGTERM", 3, 4),
        ("SIGSEGV", 0, 2),
        pytest.param("memory limit", 1, 2, marks=pytest.mark.faults),
    ],
)
def test_death_of_one_rank_ends_the_gang_and_names_it(
    gangs: Gangs, way: str, rank: int, size: int
) -> None:
    check_death(gangs, way, rank, size)


def test_out_of_memory_kill_is_told_from_any_other_sigkill(
    gangs: Gangs, memory_group: Path
) -> None:
    env = {"MEMORY_GROUP": str(memory_group)}
    handle = gangs.submit(["python", LOCKSTEP, "memory", "1"], env=env)
    status = gangs.wait(handle)
    gangs.wait_until_gone(handle)
    error = gangs.error(handle)
    assert (error.rank, error.cause, status.exit_code) == (1, "out of memory", 137)


@pytest.mark.parametrize(
    ("way", "rank", "size"),
    [
        ("sleep", 1, 2),
        *(
            pytest.param(*each, marks=pytest.mark.faults)
            for each in [("spin", 2, 3), ("SIGSTOP", 1, 4)]
        ),
    ],
)
def test_hang_of_one_rank_is_found_named_and_shown_with_its_stack(
    gangs: Gangs, way: str, rank: int, size: int
) -> None:
    check_hang(gangs, way, rank, size)


def check_hang(gangs: Gangs, way: str, rank: int, size: int) -> None:
    hang_s = limit_s(HANG_S)
    handle = gangs.submit(
        ["python", LOCKSTEP, way, str(rank)], processes_per_node=size, hang_s=hang_s
    )
    failed = gangs.wait_for_file(handle, "failed")
    bound = Bound(hang_s + 5)
    status = gangs.wait(handle)
    gangs.wait_until_gone(handle)
    bound.check(status)
    # By the file's own time: this process may see it late.
    assert time.time() - failed.stat().st_mtime > hang_s - 0.5
    error = gangs.error(handle)
    assert (status.state, status.exit_code) == (RunState.FAILED, 124), status
    assert (error.cause, error.exit_code) == ("hang", 124)
    assert (
        f"no output of any rank, no metrics and no checkpoint for {hang_s:.0f} s" in error.message
    )
    assert HANGS[way] in error.message
    assert error.rank == rank, error
    assert error.traceback is None or "lockstep.py" in error.traceback
    for other in range(size):
        stacks = [text for text in gangs.texts(handle, other) if text.startswith("Fatal Python")]
        assert stacks == ["Fatal Python error: Aborted"]


@pytest.mark.faults
@pytest.mark.parametrize(("way", "rank"), [("exit 0", 1), ("close", 1)])
def test_rank_that_leaves_or_falls_silent_is_named_only_once_the_rest_stands_still(
    gangs: Gangs, way: str, rank: int
) -> None:
    program = """
import os, sys, time
if os.environ["RANK"] == "1":
    print("done"); sys.stdout.flush()
    if sys.argv[1] == "close":
        os.close(1); os.close(2); time.sleep(3600)
    sys.exit(0)
for n in range(15):
    print("still at work", n); time.sleep(0.2)
time.sleep(3600)
"""
    hang_s = limit_s(HANG_S)
    handle = gangs.python(program.replace("15", str(int(10 * hang_s))), way, hang_s=hang_s)
    status = gangs.wait(handle)
    gangs.wait_until_gone(handle)
    error = gangs.error(handle)
    # The other rank went on for twice the limit, and nobody minded.
    last = [text for text in gangs.texts(handle, 0) if text.startswith("still")][-1]
    assert last == f"still at work {10 * hang_s - 1:.0f}"
    assert (error.rank, error.cause, status.exit_code) == (rank, "hang", 124)
    assert HANGS[way] in error.message


def test_hanging_ranks_of_torch_leave_their_flight_records(gangs: Gangs) -> None:
    """The program makes the pipe that torch makes over NCCL, and writes when something comes."""
    program = """
import os, time
rank = os.environ["RANK"]
pipe = os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] + rank + ".pipe"
os.mkfifo(pipe)
pipe = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
while not os.read(pipe, 10):
    time.sleep(0.1)
with open(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + rank, "w") as record:
    record.write("collectives")
time.sleep(3600)
"""
    env = {"TORCHELASTIC_RESTART_COUNT": "0"}
    handle = gangs.python(program, hang_s=limit_s(HANG_S), env=env)
    assert gangs.wait(handle).exit_code == 124
    outputs = Path(handle.run_dir) / "outputs"
    found = {path.name: path.read_text() for path in outputs.iterdir()}
    assert found == {f"nccl-flight-record-rank-{rank}": "collectives" for rank in (0, 1)}


@pytest.mark.faults
def test_rank_that_leaves_early_is_no_failure_when_the_rest_finishes(gangs: Gangs) -> None:
    program = "import os, time; time.sleep(0.5 * int(os.environ['RANK']))"
    handle = gangs.python(program, processes_per_node=3)
    assert gangs.wait(handle).state is RunState.COMPLETED
    gangs.wait_until_gone(handle)
    assert not (Path(handle.run_dir) / "error.json").exists()


def test_exit_75_after_a_checkpoint_is_preempted_not_failed(gangs: Gangs) -> None:
    handle = gangs.submit(["python", LOCKSTEP, "exit 75", "1"])
    status = gangs.wait(handle)
    assert (status.state, status.exit_code) == (RunState.PREEMPTED, 75)


# --- the campaign of `make faults` -----------------------------------------------------------

EVERY_PLACE = [(rank, size) for size in (2, 3, 4) for rank in range(size)]


@pytest.mark.faults
@pytest.mark.parametrize("way", DEATHS)
@pytest.mark.parametrize(("rank", "size"), EVERY_PLACE)
def test_every_rank_of_every_size_dies_in_every_way(
    gangs: Gangs, way: str, rank: int, size: int
) -> None:
    check_death(gangs, way, rank, size)


@pytest.mark.faults
@pytest.mark.parametrize("way", ["sleep", "spin", "SIGSTOP"])
@pytest.mark.parametrize(("rank", "size"), EVERY_PLACE)
@pytest.mark.parametrize("repetition", range(2))
def test_every_rank_of_every_size_hangs_in_every_way(
    gangs: Gangs, way: str, rank: int, size: int, repetition: int
) -> None:
    check_hang(gangs, way, rank, size)
