"""A run outlives the terminal it was started from, and whoever followed it."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.contracts.spec import RunState
from tests.busy import HANG_S
from tests.fakes.gangs import Gangs

DRIVER = """
import sys
from pathlib import Path
from tests.fakes.gangs import Gangs
gangs = Gangs(Path(sys.argv[1]))
handle = gangs.python(sys.argv[2])
for line in gangs.engine.logs(handle, None, follow=True):
    print(line.text, flush=True)
"""
PATIENT = """
import os, pathlib, time
print("ready", os.environ["RANK"])
while not pathlib.Path(os.environ["TRAINYARD_RUN_DIR"], "go").exists():
    time.sleep(0.02)
print("done")
"""


@pytest.mark.parametrize("way", ["terminal closed", "killed", "interrupted"])
def test_run_goes_on_and_can_be_followed_again(gangs: Gangs, way: str) -> None:
    primary, secondary = pty.openpty()
    # The terminal is the driver's own, as a shell's is: closing it hangs the driver up.
    driver = subprocess.Popen(
        ["setsid", "--ctty", sys.executable, "-c", DRIVER, str(gangs.workspace), PATIENT],
        stdin=secondary,
        stdout=secondary,
        stderr=secondary,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    os.close(secondary)
    seen = b""
    while b"ready 0" not in seen or b"ready 1" not in seen:
        seen += os.read(primary, 1 << 12)
    if way == "interrupted":
        os.write(primary, b"\x03")  # what Ctrl-C types
    elif way == "killed":
        driver.kill()
    else:
        os.close(primary)
    ended = driver.wait(HANG_S)
    if way != "terminal closed":
        os.close(primary)
    expected = {
        "terminal closed": -signal.SIGHUP,
        "killed": -signal.SIGKILL,
        "interrupted": -signal.SIGINT,
    }
    assert ended == expected[way]
    handle = gangs.engine.store.find("last")
    gangs.handles.append(handle)
    assert gangs.engine.store.status(handle).state is RunState.RUNNING
    Path(handle.run_dir, "go").touch()
    lines = [(line.rank, line.text) for line in gangs.engine.logs(handle, None, follow=True)]
    assert sorted(lines) == [(0, "done"), (0, "ready 0"), (1, "done"), (1, "ready 1")]
    assert gangs.engine.store.status(handle).state is RunState.COMPLETED
