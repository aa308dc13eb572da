"""Looking at living ranks: `launch stacks` and `launch exec`, typed against a gang of two."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import msgspec
import pytest

from jobs.cli import main
from jobs.contracts.spec import RunHandle, RunState
from jobs.runs.run_folder import read_events
from tests.busy import HANG_S, limit_s
from tests.fakes.gangs import Gangs

SECRET = "s3cret-of-the-job"
PROGRAM = """
import os, sys, threading, time
rank = os.environ["RANK"]
ready = f"{os.environ['TRAINYARD_RUN_DIR']}/ready-{rank}"
def load(): open(ready, "w").close(); time.sleep(600)
def wait(): open(ready, "w").close(); threading.Event().wait()
load() if rank == "1" else wait()
"""


@pytest.fixture
def gangs(tmp_path: Path) -> Iterator[Gangs]:
    """An engine and its environment as a file."""
    made = Gangs(tmp_path / "workspace")
    (tmp_path / "env.json").write_bytes(msgspec.json.encode(made.engine.environment))
    yield made
    made.end()


@pytest.fixture
def handle(gangs: Gangs) -> RunHandle:
    """Two ranks, of which the second one keeps the first one waiting."""
    found = gangs.python(PROGRAM, secrets={"TOKEN": SECRET}, env={"GREETING": "two words"})
    for rank in (0, 1):
        gangs.wait_for_file(found, f"ready-{rank}")
    return found


def launch(gangs: Gangs, *words: str) -> subprocess.CompletedProcess[str]:
    """In this process: a command that starts gets a process of its own in its test."""
    verb, *rest = words
    typed = [verb, "--env", str(gangs.workspace.parent / "env.json"), *rest]
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(typed)
    return subprocess.CompletedProcess(typed, code, out.getvalue(), err.getvalue())


def test_the_stacks_of_all_ranks_are_grouped(
    gangs: Gangs, handle: RunHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.host.python_stacks.TIMEOUT_S", HANG_S)
    typed = launch(gangs, "stacks", handle.id, "--json")
    assert typed.returncode == 0, typed.stderr
    told = json.loads(typed.stdout)
    functions = {
        tuple(group["ranks"]): [each["function"] for each in group["threads"][0]["frames"]]
        for group in told["groups"]
    }
    assert functions[1,] == ["load", "<module>"]
    assert functions[0,][-2:] == ["wait", "<module>"]
    assert (told["without"], told["is_recorded"]) == ({}, False)
    shown = launch(gangs, "stacks", handle.id).stdout
    assert "rank 1:\n  load      <string>:5\n  <module>  <string>:7\n" in shown


def test_a_command_runs_in_a_ranks_folder_with_its_variables(
    gangs: Gangs, handle: RunHandle
) -> None:
    asked = (
        "import os, sys; print(os.getcwd()); print(os.environ['GREETING'], os.environ['RANK']); "
        "print(os.environ['TOKEN'] == sys.stdin.read(), os.nice(0), 'TRAINYARD_GANG' in os.environ); "
        "sys.exit(7)"
    )
    command = ["--rank", "1", handle.id, "--", sys.executable, "-c", asked]
    program = str(Path(sys.executable).with_name("launch"))
    environment = str(gangs.workspace.parent / "env.json")
    typed = subprocess.run(
        [program, "exec", "--env", environment, *command],
        input=SECRET,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )
    assert typed.returncode == 7, typed.stderr
    folder, said, facts = typed.stdout.splitlines()
    pid = gangs.engine.command_processes(handle)[1]
    assert folder == str(Path(f"/proc/{pid}/cwd").readlink())
    assert (said, facts) == ("two words 1", "True 19 False")
    assert SECRET not in typed.stdout + typed.stderr


def test_what_cannot_be_entered_is_refused(
    gangs: Gangs, handle: RunHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    # This process stays where it is, and as urgent, though it tries to become the program.
    monkeypatch.setattr("os.chdir", lambda _folder: None)
    monkeypatch.setattr("os.nice", lambda _more: 0)
    none = launch(gangs, "exec", "--rank", "5", handle.id, "--", "true")
    assert (none.returncode, none.stdout) == (3, "")
    assert none.stderr.startswith(f"error: run {handle.id} has no rank 5\n")
    assert none.stderr.endswith("hint: its ranks are 0 to 1\n")
    unknown = launch(gangs, "exec", handle.id, "--", "no-such-program")
    assert unknown.returncode == 1
    assert "cannot start `no-such-program` beside rank 0: No such file" in unknown.stderr
    gangs.engine.cancel(handle)
    gangs.wait(handle)
    over = launch(gangs, "exec", handle.id, "--", "true")
    assert (over.returncode, "the command of rank 0 does not run" in over.stderr) == (3, True)
    gone = launch(gangs, "stacks", handle.id)
    assert (gone.returncode, gone.stdout) == (3, "")
    assert f"run {handle.id} is over, and no stacks were recorded" in gone.stderr


def test_a_record_that_names_another_process_is_not_believed(
    gangs: Gangs, handle: RunHandle
) -> None:
    path = Path(handle.run_dir, "ranks", "00001.json")
    record = json.loads(path.read_text()) | {"child": os.getpid()}
    path.write_text(json.dumps(record))
    assert gangs.engine.command_processes(handle).keys() == {0}


def test_stacks_of_a_hang_are_recorded(gangs: Gangs) -> None:
    handle = gangs.python(PROGRAM, hang_s=limit_s(3.0))
    assert gangs.wait(handle).state is RunState.FAILED
    assert [each.state for each in read_events(Path(handle.run_dir))][-1] is RunState.FAILED
    typed = launch(gangs, "stacks", handle.id)
    assert typed.stderr == "as recorded when the run was ended; of now there are none\n"
    assert "rank 1:\n  load      <string>:5\n  <module>  <string>:7\n" in typed.stdout
    assert "  wait      <string>:6\n" in typed.stdout
