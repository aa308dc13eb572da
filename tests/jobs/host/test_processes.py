"""Whom a run's end may reach: its own processes, known by id and start time, and nobody else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.host.processes import (
    MARK,
    Process,
    kill_leftovers,
    leftovers,
    of_run,
    read_process,
    read_table,
    send,
    send_to_group,
)

INIT = Process(pid=1, parent=0, state="S", cpu_s=0.0, start=0)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A child of this test that bears the mark of the run `/runs/a`."""
    env = {**os.environ, MARK: "/runs/a"}
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1, env=env) as process:
        yield process
        process.kill()


def look(pid: int) -> Process:
    process = read_process(pid)
    assert process is not None
    return process


def test_process_is_read_whatever_its_name_is(tmp_path: Path) -> None:
    program = tmp_path / ") S 1 (x"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "60"]) as process:
        assert look(process.pid).parent == os.getpid()
        process.kill()


def test_mark_is_the_whole_value_of_one_variable(sleeper: subprocess.Popen[bytes]) -> None:
    pids = [sleeper.pid, os.getpid(), 1]
    assert of_run(Path("/runs/a"), pids) == [sleeper.pid]
    for other in ("/runs", "/runs/ab", "uns/a"):
        assert of_run(Path(other), pids) == []


def test_leftovers_are_what_is_below_the_root_or_bears_the_mark(
    sleeper: subprocess.Popen[bytes],
) -> None:
    me = look(os.getpid())
    assert sleeper.pid in [each.pid for each in leftovers(me, Path("/runs/none"))]
    assert [each.pid for each in leftovers(None, Path("/runs/a"))] == [sleeper.pid]
    assert leftovers(None, Path("/runs/a"), spare=[sleeper.pid]) == []
    assert leftovers(None, Path("/runs/none")) == []


def test_root_whose_id_went_to_another_process_counts_for_nothing() -> None:
    me = look(os.getpid())
    former = me._replace(start=me.start - 1)
    with subprocess.Popen(["sleep", "60"]) as child:
        assert leftovers(former, Path("/runs/none")) == []
        child.kill()


def test_nothing_is_ever_looked_for_below_init() -> None:
    init = read_table()[1]
    with pytest.raises(AssertionError, match="everything on the machine"):
        leftovers(init, Path("/runs/none"))


def test_signal_to_a_process_whose_id_was_reused_is_not_sent(
    sleeper: subprocess.Popen[bytes],
) -> None:
    former = look(sleeper.pid)._replace(start=0)
    send(former, signal.SIGKILL)
    assert sleeper.poll() is None
    send(look(sleeper.pid), signal.SIGKILL)
    assert sleeper.wait() == -signal.SIGKILL


@pytest.mark.parametrize("pid", [1, 0, -1])
def test_signal_that_would_reach_more_than_one_process_is_refused(pid: int) -> None:
    with pytest.raises(AssertionError, match="more than one"):
        send(INIT._replace(pid=pid), signal.SIGCONT)
    with pytest.raises(AssertionError, match="everybody"):
        send_to_group(pid, signal.SIGCONT)


def test_signal_to_the_own_group_is_refused() -> None:
    with pytest.raises(AssertionError, match="own group"):
        send_to_group(os.getpgrp(), signal.SIGCONT)


def test_signal_to_a_group_that_is_gone_is_silent() -> None:
    child = subprocess.Popen(["true"], start_new_session=True)
    child.wait()
    send_to_group(child.pid, signal.SIGKILL)


def test_kill_leftovers_ends_what_bears_the_mark_and_gives_nothing_left(
    sleeper: subprocess.Popen[bytes],
) -> None:
    assert kill_leftovers(None, Path("/runs/a"), timeout_s=10) == []
    assert sleeper.wait() == -signal.SIGKILL
