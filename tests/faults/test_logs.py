"""Floods of lines: none lost, none torn, in order, whoever reads and however the rank ends."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

from jobs.contracts.spec import LogLine, RunState
from tests.busy import HANG_S
from tests.fakes.gangs import PROGRAMS, Gangs

FLOOD = str(PROGRAMS / "flood.py")


def expected(rank: int, lines: int) -> list[str]:
    return [*(f"{rank} {number:06d} €" for number in range(lines)), "last words"]


@pytest.mark.parametrize(
    "num_lines",
    [10_000, pytest.param(100_000, marks=pytest.mark.faults)],
    ids=["ten thousand", "hundred thousand"],
)
def test_all_lines_of_each_of_four_ranks_arrive_while_followed(
    gangs: Gangs, num_lines: int
) -> None:
    handle = gangs.submit(["python", FLOOD, str(num_lines), "exit"], processes_per_node=4)
    followed: list[LogLine] = []
    reader = threading.Thread(
        target=lambda: followed.extend(gangs.engine.logs(handle, None, follow=True))
    )
    reader.start()
    assert gangs.wait(handle, 120).state is RunState.COMPLETED
    reader.join(HANG_S)
    wanted = [expected(rank, num_lines) for rank in range(4)]
    for rank in range(4):
        # Compared piecewise: a diff of so many lines helps nobody.
        for name, lines in (
            ("followed", [line.text for line in followed if line.rank == rank]),
            ("read", gangs.texts(handle, rank)),
        ):
            assert len(lines) == len(wanted[rank]), (name, rank)
            wrong = next((n for n, line in enumerate(lines) if line != wanted[rank][n]), None)
            assert wrong is None, (name, rank, wrong)
    stamps = [line.ts for line in gangs.engine.logs(handle, None, follow=False)]
    assert stamps == sorted(stamps)


def test_lines_before_a_kill_are_all_there(gangs: Gangs) -> None:
    handle = gangs.submit(["python", FLOOD, "20000", "SIGKILL"], processes_per_node=2)
    assert gangs.wait(handle).exit_code == 137
    assert gangs.texts(handle, 0) == expected(0, 20_000)


def test_ranks_tail_and_grep_choose_among_the_lines_of_a_run(gangs: Gangs) -> None:
    handle = gangs.submit(["python", FLOOD, "50", "exit"], processes_per_node=3)
    gangs.wait(handle)
    lines = gangs.engine.logs(handle, [0, 2], follow=False, tail=4, grep=re.compile(r" 00004[89] "))
    assert sorted((line.rank, line.text) for line in lines) == [
        (0, "0 000048 €"),
        (0, "0 000049 €"),
        (2, "2 000048 €"),
        (2, "2 000049 €"),
    ]
    middle = list(gangs.engine.logs(handle, [1], follow=False))[30].ts
    since = list(gangs.engine.logs(handle, [1], follow=False, since=middle))
    assert since == [
        line for line in gangs.engine.logs(handle, [1], follow=False) if line.ts >= middle
    ]


def test_output_of_a_daemon_that_holds_the_stream_open_ends_with_the_rank(gangs: Gangs) -> None:
    program = "import os, time\nprint('mine')\nif not os.fork(): time.sleep(3600)"
    handle = gangs.python(program, processes_per_node=1)
    assert gangs.wait(handle, 20).state is RunState.COMPLETED
    assert gangs.texts(handle, 0) == ["mine"]
    gangs.wait_until_gone(handle)


def test_program_that_is_not_there_says_so_in_its_log(gangs: Gangs) -> None:
    handle = gangs.submit(["./no-such-program"], processes_per_node=1)
    status = gangs.wait(handle)
    assert (status.state, status.exit_code) == (RunState.FAILED, 127)
    message = "cannot start `./no-such-program`: No such file or directory"
    assert gangs.texts(handle, 0) == [message]
    assert gangs.error(handle).message == message


@pytest.mark.parametrize("line", ["exit 5", "kill -9 $$"])
def test_setup_that_fails_runs_once_a_node_and_ends_the_run(gangs: Gangs, line: str) -> None:
    command = f"echo tried >> $TRAINYARD_RUN_DIR/tries; {line}"
    handle = gangs.submit(["true"], setup=("echo first", command), processes_per_node=3)
    status = gangs.wait(handle)
    assert status.state is RunState.FAILED
    assert Path(handle.run_dir, "tries").read_text() == "tried\n"
    code = 5 if line == "exit 5" else 137
    assert status.exit_code == code
    assert gangs.error(handle).cause == "setup failed"
    assert gangs.error(handle).message == f"`{command}` gave exit code {code}"
