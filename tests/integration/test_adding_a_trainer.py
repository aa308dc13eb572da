"""docs/adding-a-trainer.md: its program trains on one rank and on two, and goes on as it says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from jobs.images.runtimes import PROJECT
from tests.fakes.torch_ranks import Zygote, start_gang

PAGE = PROJECT / "docs" / "adding-a-trainer.md"
RUNNER = "tests.integration.programs.page_program"
RUN_TIMEOUT_S = 300


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    """The page's program in a file."""
    (text,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    file = tmp_path_factory.mktemp("code") / "line.py"
    file.write_text(text)
    return file


def train(
    zygote: Zygote, program: Path, folder: Path, *arguments: str, size: int = 1
) -> dict[str, Any]:
    """Run the program on so many ranks, which keep everything in a folder; gives its summary."""
    argv = [RUNNER, str(program), *arguments]
    gang = start_gang(
        zygote, argv, strategy="ddp" if size > 1 else "single", size=size, folder=folder
    )
    try:
        assert gang.wait(RUN_TIMEOUT_S) == [0] * size, gang.texts()
    finally:
        gang.end()
    return json.loads((folder / "summary.json").read_text())


def test_the_pages_program_learns(zygote, program, tmp_path):
    assert train(zygote, program, tmp_path)["test_loss"] < 0.06


@pytest.mark.faults
def test_the_pages_program_goes_on_where_it_was_left(zygote, program, tmp_path):
    whole = train(zygote, program, tmp_path / "whole")
    train(zygote, program, tmp_path / "parts", "--epochs", "2")
    resumed = train(zygote, program, tmp_path / "parts", "--epochs", "4")
    assert resumed["resumed_from_step"] == 40
    assert resumed["weights_sha256"] == whole["weights_sha256"]


@pytest.mark.faults
def test_two_ranks_take_the_steps_of_one(zygote, program, tmp_path):
    alone = train(zygote, program, tmp_path / "1")
    together = train(zygote, program, tmp_path / "2", size=2)
    assert together["world_size"] == 2
    assert together["test_loss"] == pytest.approx(alone["test_loss"], abs=1e-4)
