"""docs/adding-a-trainer.md: its program trains on one rank and on two, and goes on as it says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from jobs.images.runtimes import PROJECT
from tests import needs
from tests.ports import free_port

PAGE = PROJECT / "docs" / "adding-a-trainer.md"


@pytest.fixture(scope="module")
def code(tmp_path_factory) -> Path:
    """The project's trainer/ with the page's program in it."""
    folder = tmp_path_factory.mktemp("code")
    shutil.copytree(
        PROJECT / "trainer", folder / "trainer", ignore=shutil.ignore_patterns("__pycache__")
    )
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (folder / "trainer" / "pytorch" / "line.py").write_text(program)
    return folder


def train(code: Path, folder: Path, *arguments: str, num_ranks: int = 1) -> dict[str, Any]:
    """Run the program on so many ranks, which keep everything in a folder; gives its summary."""
    python = needs.runtime("pytorch")
    folder.mkdir(exist_ok=True)
    port = str(free_port())
    ranks = [
        subprocess.Popen(
            [python, "-m", "trainer.pytorch.line", "--checkpoint-dir", folder / "ck", *arguments],
            env={
                **os.environ,
                "PYTHONPATH": str(code),
                "TRAINYARD_RUN_DIR": str(folder),
                "OMP_NUM_THREADS": "1",
                "WORLD_SIZE": str(num_ranks),
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "LOCAL_WORLD_SIZE": str(num_ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
            },
            cwd=folder,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(num_ranks)
    ]
    for rank in ranks:
        _, said = rank.communicate(timeout=300)
        assert rank.returncode == 0, said
    return json.loads((folder / "summary.json").read_text())


def test_the_pages_program_learns_and_goes_on_where_it_was_left(code, tmp_path):
    whole = train(code, tmp_path / "whole")
    assert whole["test_loss"] < 0.06
    train(code, tmp_path / "parts", "--epochs", "2")
    resumed = train(code, tmp_path / "parts", "--epochs", "4")
    assert resumed["resumed_from_step"] == 40
    assert resumed["weights_sha256"] == whole["weights_sha256"]


@pytest.mark.faults
def test_two_ranks_take_the_steps_of_one(code, tmp_path):
    alone, together = train(code, tmp_path / "1"), train(code, tmp_path / "2", num_ranks=2)
    assert together["world_size"] == 2
    assert together["test_loss"] == pytest.approx(alone["test_loss"], abs=1e-4)
