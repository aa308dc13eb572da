"""Who of a rank's command gets the signal that the rank gets: real processes, told by a real rank."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.busy import HANG_S, wait_until

RANK = "import sys; from jobs.rank.main import main; sys.exit(main())"
# Leaves with 75 if what it has started outlives the signal by some time, as a loader's workers must.
SAVES = """
import signal, subprocess, sys, time
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("ready", flush=True)
while not told:
    time.sleep(0.01)
try:
    worker.wait(0.5)
except subprocess.TimeoutExpired:
    worker.kill()
    print("saved", flush=True)
    sys.exit(75)
"""
# Does not catch it, and waits for one that does.
WRAPS = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
WAITS = "import time; print('ready', flush=True); time.sleep(600)"

TOUCHES = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path("saved").touch(), sys.exit()))
print("ready", flush=True)
time.sleep(600)
"""


def python(*words: str) -> list[str]:
    return [sys.executable, "-c", *words]


def shell(script: str, *, name: str = "bash") -> list[str]:
    return [name, "-c", script]


SAVING = shlex.join(python(SAVES))
WAITING = shlex.join(python(WAITS))


def told(folder: Path, command: list[str], number: int = signal.SIGTERM) -> dict[str, Any]:
    """Start a rank, send it the signal once its command is ready; gives its record, with its `lines`."""
    for name in ("code", "logs", "nodes", "outputs", "ranks"):
        (folder / name).mkdir()
    job = folder / "rank.json"
    job.write_text(json.dumps({"run_dir": str(folder), "command": command}))
    log = folder / "logs" / "rank-00000.log"
    rank = subprocess.Popen([sys.executable, "-c", RANK, str(job)])
    try:
        wait_until(lambda: log.exists() and "ready" in log.read_text(), HANG_S)
        rank.send_signal(number)
        rank.wait(HANG_S)
    finally:
        rank.kill()
        rank.wait()
    record = json.loads((folder / "ranks" / "00000.json").read_bytes())
    return {**record, "lines": [line.partition(" ")[2] for line in log.read_text().splitlines()]}


def end(record: dict[str, Any]) -> tuple[int | None, int | None]:
    return record["exit_code"], record["signal"]


@pytest.mark.parametrize(
    "command",
    [
        python(SAVES),
        shell(f"{SAVING}; exit $?"),
        shell(f"{SAVING}; exit $?", name="sh"),
        shell(f"set -o pipefail; {SAVING} 2>&1 | tee log.txt"),
        shell(f"(cd .; {SAVING}; exit $?); exit $?"),
        # Its own process is told as well, and waits.
        shell(f"trap 'wait $!; exit $?' TERM; {SAVING} & wait $!"),
        # Bash would run it at the signal, and leave.
        shell(f"trap 'rm -f scratch' EXIT; {SAVING}; exit $?"),
    ],
    ids=["itself", "bash", "sh", "pipe", "subshell", "trap", "trap of the end"],
)
def test_program_that_catches_the_signal_keeps_its_processes_while_it_saves(
    tmp_path: Path, command: list[str]
) -> None:
    record = told(tmp_path, command)
    assert (end(record), record["lines"]) == ((75, None), ["ready", "saved"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    "command",
    [python(WAITS), shell(f"{WAITING} & sleep 600; true"), python(WRAPS, WAITS)],
    ids=["itself", "bash", "wrapper"],
)
def test_all_processes_of_a_command_get_the_signal_that_no_program_catches(
    tmp_path: Path, command: list[str], number: int
) -> None:
    record = told(tmp_path, command, number)
    assert end(record) == (None, number)
    wait_until(lambda: is_gone(record["child"]), HANG_S)


def test_trap_of_a_shell_runs_though_its_program_catches_nothing(tmp_path: Path) -> None:
    """A shell runs its trap once the program that it waits for is over, which the signal ends."""
    record = told(tmp_path, shell(f"trap 'echo trapped; exit 7' TERM; {WAITING}; true"))
    assert (end(record), record["lines"][-1]) == ((7, None), "trapped")


def test_signal_reaches_who_catches_it_below_a_program_that_does_not(tmp_path: Path) -> None:
    record = told(tmp_path, python(WRAPS, TOUCHES))
    assert end(record) == (None, signal.SIGTERM)
    wait_until((tmp_path / "nodes/0/saved").exists, HANG_S)


def is_gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False
