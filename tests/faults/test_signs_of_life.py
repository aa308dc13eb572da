"""What counts as a sign of life, and what does not; what a progress bar leaves in the log."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from jobs.contracts.spec import Limits, RunState
from tests.busy import limit_s
from tests.fakes.gangs import Gangs

HANG_S = 2.0
# As tqdm and Keras write: many times a second, and never the end of a line.
BAR = """
import sys, time
for n in range(26):
    sys.stderr.write("\\r%3d%%|##   | [00:01<00:02, 9.99it/s]" % n); sys.stderr.flush()
    time.sleep(0.1)
"""


@pytest.mark.faults
def test_progress_bar_is_a_sign_of_life_and_shown_about_once_a_second(gangs: Gangs) -> None:
    began_s = time.monotonic()
    handle = gangs.python(BAR, processes_per_node=1, hang_s=limit_s(HANG_S))
    status = gangs.wait(handle)
    took_s = time.monotonic() - began_s
    assert (status.state, status.reason) == (RunState.COMPLETED, None)
    texts = gangs.texts(handle, 0)
    assert texts[-1] == " 25%|##   | [00:01<00:02, 9.99it/s]"
    assert 2 <= len(texts) <= took_s + 3, texts


@pytest.mark.faults
def test_line_without_an_end_that_says_nothing_more_is_a_hang(gangs: Gangs) -> None:
    hang_s = limit_s(HANG_S)
    program = "import time; print('loading', end='', flush=True); time.sleep(3600)"
    handle = gangs.python(program, processes_per_node=1, hang_s=hang_s)
    assert gangs.wait(handle).exit_code == 124
    assert gangs.error(handle).message == (
        f"no output of any rank, no metrics and no checkpoint for {hang_s:g} s; "
        "it has given no sign of life (<string>:1)"
    )


def test_hang_that_is_off_is_not_looked_for(gangs: Gangs) -> None:
    limits = Limits(wall_clock_s=1.0, hang_s=None)
    handle = gangs.python("import time; time.sleep(3600)", processes_per_node=1, limits=limits)
    assert gangs.wait(handle).reason == "limits.wall_clock: it ran longer than 1 s"


@pytest.mark.faults
@pytest.mark.parametrize("hang_s", [None, 30 * 86400.0])
def test_run_without_a_limit_in_sight_is_watched_to_its_end(
    gangs: Gangs, hang_s: float | None
) -> None:
    limits = Limits(wall_clock_s=None, hang_s=hang_s)
    handle = gangs.python("print('done')", processes_per_node=1, limits=limits)
    assert gangs.wait(handle).state is RunState.COMPLETED


def test_exception_in_a_function_with_a_progress_bar_is_the_runs_reason(gangs: Gangs) -> None:
    program = r"import sys; sys.stderr.write(' 1/10 loss: 2.3\r\r 2/10 loss: 2.1\r'); raise ValueError('boom')"
    handle = gangs.python(program, processes_per_node=1)
    status = gangs.wait(handle)
    error = gangs.error(handle)
    assert (status.exit_code, error.cause) == (1, "uncaught exception")
    assert error.message == "ValueError: boom (<string>:1)"
    assert Path(handle.run_dir, "ranks", "00000.json").read_text().count("ended_s") == 1


@pytest.mark.parametrize("launcher", ["none", "torch"])
def test_variable_with_a_nul_ends_the_run_with_a_message(gangs: Gangs, launcher: str) -> None:
    handle = gangs.submit(["true"], env={"A": "b\0c"}, launcher=launcher)
    status = gangs.wait(handle)
    assert status.state is RunState.FAILED
    assert (status.reason or "").endswith("cannot run: embedded null byte")


def test_message_of_ten_megabytes_stays_small_in_all_that_records_it(gangs: Gangs) -> None:
    handle = gangs.python("raise ValueError('x' * (10 << 20))", processes_per_node=1)
    reason = gangs.wait(handle).reason or ""
    assert reason.endswith("(<string>:1)")
    assert "... (cut: the line has " in reason
    run = Path(handle.run_dir)
    names = ("events.jsonl", "error.json", "ranks/00000.json", "supervisor.log")
    assert [name for name in names if (run / name).stat().st_size > 100_000] == []
    assert (run / "logs" / "rank-00000.log").stat().st_size > 10 << 20
