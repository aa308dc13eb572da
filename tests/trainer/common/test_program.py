"""The end of a rank: its message and exit code, and whether it waits for the others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.busy import HANG_S

REPO = Path(__file__).parents[3]
# A rank of a made strategy, of which leaving writes a line and then blocks if it waits for others.
PROGRAM = """
import sys, threading
from pathlib import Path
from trainer.common.errors import TrainingError
from trainer.common.preemption import Preempted
from trainer.common.program import run_ranks
from trainer.common.training_options import TrainingOptions

class Strategy:
    waits_to_leave = {waits}
    def shutdown(self):
        print("left", flush=True)
        if {waits} and not {together}:
            threading.Event().wait()

def train(ranks):
    sys.stdout.write("trained\\n")
    {end}

code = run_ranks(TrainingOptions(), lambda world: Strategy(), train)
print("returned", flush=True)
sys.exit(code)
"""
MENDABLE = "raise TrainingError('the disk is full', hint='another one')"
TEXT = "error: the disk is full (hint: another one)"


def end(
    folder: Path, how: str, *, waits: bool, together: bool = False
) -> tuple[int, list[str], list[str]]:
    """The exit code, the lines on stdout and the last one on stderr, if there is one."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(end=how, waits=waits, together=together)],
        env={**os.environ, "PYTHONPATH": str(REPO)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    return ended.returncode, ended.stdout.splitlines(), ended.stderr.splitlines()[-1:]


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        (MENDABLE, 1, [TEXT]),
        ("raise KeyError('weights')", 1, ["KeyError: 'weights'"]),
        ("raise KeyboardInterrupt", 130, ["KeyboardInterrupt"]),
        ("sys.exit(3)", 3, []),
        ("sys.exit('no network')", 1, ["no network"]),
    ],
)
def test_a_rank_that_fails_alone_waits_for_nobody(tmp_path, how, code, words):
    """NCCL would wait for the other ranks, which wait for this one, for as long as a collective may."""
    assert end(tmp_path, how, waits=True) == (code, ["trained"], words)


def test_a_rank_that_fails_leaves_where_nothing_waits(tmp_path):
    """By which Gloo and Horovod tell the others."""
    assert end(tmp_path, MENDABLE, waits=False) == (1, ["trained", "left", "returned"], [TEXT])
    assert end(tmp_path, "raise KeyError('weights')", waits=False) == (
        1,
        ["trained", "left"],
        ["KeyError: 'weights'"],
    )


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [("pass", 0, []), ("raise Preempted('a notice')", 75, ["preempted: a notice"])],
)
def test_ranks_that_end_together_leave_the_group(tmp_path, how, code, words):
    found = end(tmp_path, how, waits=True, together=True)
    assert found == (code, ["trained", "left", "returned"], words)


def test_processes_of_loaders_end_with_a_rank_that_waits_for_nobody(tmp_path):
    """They have its pipes, whose readers would wait for one that is left."""
    fork = (
        "multiprocessing.get_context('fork').Process(target=time.sleep, args=(1e6,), daemon=True)"
    )
    how = f"import multiprocessing, time; {fork}.start(); {MENDABLE}"
    assert end(tmp_path, how, waits=True) == (1, ["trained"], [TEXT])
