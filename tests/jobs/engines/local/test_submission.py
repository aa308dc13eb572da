"""Submitting on this machine: what a `launch` leaves that is ended while it copies the code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from jobs.contracts.spec import RunState
from tests.busy import HANG_S
from tests.fakes.gangs import Gangs

# `launch run` whose copy of the code never ends.
LAUNCH = """
import sys, time
from pathlib import Path
from jobs.runs import code
from jobs.images import runtimes as images
from jobs.cli import main
def copy(source, target):
    print("copying", flush=True)
    time.sleep(600)
code.copy_content = copy
images.runtime_python = lambda *_: Path(sys.executable)
sys.exit(main(["run", "job.yaml", "--detach", "--env", "env.json"]))
"""


@pytest.fixture
def gangs(tmp_path: Path) -> Iterator[Gangs]:
    """An engine beside a job whose code is one file."""
    made = Gangs(tmp_path / "workspace")
    clusters = {
        name: msgspec.structs.replace(each, price_per_node_hour=0.0)
        for name, each in made.engine.environment.clusters.items()
    }
    environment = msgspec.structs.replace(made.engine.environment, clusters=clusters)
    (tmp_path / "env.json").write_bytes(msgspec.json.encode(environment))
    (tmp_path / "train.py").write_text("pass\n")
    (tmp_path / "job.yaml").write_text("name: a\nimage: a\nlauncher: none\nscript: train.py\n")
    yield made
    made.end()


@pytest.fixture
def copying(gangs: Gangs) -> Iterator[subprocess.Popen[str]]:
    """A `launch` in the midst of copying."""
    with subprocess.Popen(
        [sys.executable, "-c", LAUNCH],
        cwd=gangs.workspace.parent,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "copying\n"
        yield process
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_launch_told_to_end_while_it_copies_leaves_nothing(
    gangs: Gangs, copying: subprocess.Popen[str], number: signal.Signals
) -> None:
    assert len(gangs.engine.store.names()) == 1
    copying.send_signal(number)
    assert copying.wait(HANG_S) == 128 + number
    assert list((gangs.workspace / "runs").iterdir()) == []


def test_what_a_killed_launch_had_copied_goes_with_the_next_run(
    gangs: Gangs, copying: subprocess.Popen[str]
) -> None:
    (half,) = gangs.engine.store.names()
    first = gangs.submit(["true"]).id
    # Who copies still is left alone.
    assert sorted(gangs.engine.store.names()) == sorted([half, first])
    copying.kill()
    copying.wait(HANG_S)
    second = gangs.submit(["true"]).id
    assert sorted(gangs.engine.store.names()) == sorted([first, second])
    for handle in gangs.handles:
        assert gangs.wait(handle).state is RunState.COMPLETED


def test_a_folder_that_was_a_run_is_no_leftover(gangs: Gangs) -> None:
    handle = gangs.submit(["true"])
    gangs.wait(handle)
    gangs.wait_until_gone(handle)
    Path(handle.run_dir, "run.json").unlink()
    gangs.wait(gangs.submit(["true"]))
    assert Path(handle.run_dir, "logs").is_dir()
