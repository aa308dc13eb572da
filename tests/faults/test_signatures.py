"""However a run ends, what opened the store to it is gone."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from jobs.contracts.spec import RunState
from jobs.host.processes import read_table
from jobs.runs.signatures import signature_file
from tests.fakes.gangs import Gangs

# As if its preparation had left a signature there.
PROGRAM = """
import os, pathlib, time
inputs = pathlib.Path(os.environ["TRAINYARD_RUN_DIR"], "inputs")
inputs.mkdir(exist_ok=True)
(inputs / "data.sas").write_text("sig=secret")
time.sleep({sleep_s})
raise SystemExit({exit_code})
"""


@pytest.mark.parametrize(("exit_code", "state"), [(0, RunState.COMPLETED), (3, RunState.FAILED)])
def test_a_run_that_ends_by_itself_leaves_no_signature(
    gangs: Gangs, exit_code: int, state: RunState
) -> None:
    handle = gangs.python(PROGRAM.format(sleep_s=0.1, exit_code=exit_code))
    assert gangs.wait(handle).state is state
    assert not signature_file(Path(handle.run_dir), "data").exists()


@pytest.mark.parametrize("victim", ["supervisor", "watcher"])
def test_a_run_whose_supervisor_or_watcher_is_killed_leaves_no_signature(
    gangs: Gangs, victim: str
) -> None:
    handle = gangs.python(PROGRAM.format(sleep_s=3600, exit_code=0))
    path = gangs.wait_for_file(handle, "inputs/data.sas")
    table, pair = read_table(), gangs.supervisors(handle)
    (supervisor,) = [pid for pid in pair if table[pid].parent in pair]
    os.kill(supervisor if victim == "supervisor" else table[supervisor].parent, signal.SIGKILL)
    assert gangs.wait(handle).state.is_terminal()
    gangs.wait_until_gone(handle)
    assert not path.exists()


def test_what_a_run_left_whose_every_process_was_killed_goes_when_the_next_one_starts(
    gangs: Gangs,
) -> None:
    handle = gangs.python(PROGRAM.format(sleep_s=3600, exit_code=0))
    path = gangs.wait_for_file(handle, "inputs/data.sas")
    pair = gangs.supervisors(handle)
    # Stopped first, so that neither can tidy up after the other.
    for fatal in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pair:
            os.kill(pid, fatal)
    gangs.wait_until_gone(handle)
    assert path.exists()
    gangs.wait(gangs.python("pass"))
    assert not path.exists()
