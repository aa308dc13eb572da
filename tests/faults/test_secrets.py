"""A secret reaches the ranks, and no command line, file or log."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

import pytest

from jobs.contracts.spec import RunState
from jobs.host.processes import read_table
from tests.fakes.gangs import Gangs

# Another process's tests may look at the same machine at the same time.
OWN = f"{os.getpid():07x}"
SECRET = f"{OWN}/with space & ünusual {OWN}"
TALKATIVE = """
import os, pathlib, sys, time, urllib.parse
secret = os.environ["TOKEN"]
pathlib.Path(os.environ["TRAINYARD_RUN_DIR"], f"length-{len(secret)}").touch()
print("plain", secret)
print("url", urllib.parse.quote(secret), urllib.parse.quote_plus(secret))
for part in ("in ", secret[:7], secret[7:], " pieces\\n"):
    os.write(1, part.encode()); time.sleep(0.1)
while not pathlib.Path(os.environ["TRAINYARD_RUN_DIR"], "go").exists():
    time.sleep(0.02)
raise ValueError("no luck with " + secret)
"""


def command_lines() -> bytes:
    found = b""
    for pid in read_table():
        try:
            found += Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
    return found


@pytest.mark.parametrize("launcher", ["none", "horovod"])
def test_secret_is_in_no_command_line_and_no_byte_of_the_run(gangs: Gangs, launcher: str) -> None:
    check_secret_stays_hidden(gangs, launcher)


def check_secret_stays_hidden(gangs: Gangs, launcher: str) -> None:
    handle = gangs.submit(["python", "-c", TALKATIVE], secrets={"TOKEN": SECRET}, launcher=launcher)
    gangs.wait_for_file(handle, f"length-{len(SECRET)}")
    marks = [each.encode() for each in (SECRET, quote(SECRET), OWN, f"ünusual {OWN}")]
    for _ in range(20):
        lines = command_lines()
        assert [mark for mark in marks if mark in lines] == []
    Path(handle.run_dir, "go").touch()
    status = gangs.wait(handle)
    gangs.wait_until_gone(handle)
    assert (status.state, status.exit_code) == (RunState.FAILED, 1)
    assert "ValueError: no luck with ***" in (status.reason or "")
    files = [each for each in Path(handle.run_dir).rglob("*") if each.is_file()]
    assert len(files) > 8
    assert [(f.name, m) for f in files for m in marks if m in f.read_bytes()] == []
    assert gangs.texts(handle, 0)[:3] == ["plain ***", "url *** ***", "in *** pieces"]
