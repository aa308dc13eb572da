"""The exchange of a step is measured: what a slower rank makes the others wait is no compute."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs.contracts.spec import RunState
from jobs.images.runtimes import PROJECT
from tests.fakes.gangs import Gangs

PROGRAM = PROJECT / "tests/integration/programs/step_parts.py"


@pytest.mark.parametrize(("strategy", "launcher"), [("ddp", "torch"), ("horovod", "horovod")])
def test_what_a_slower_rank_makes_others_wait_is_exchange(
    torch_gangs: Gangs, tmp_path: Path, strategy: str, launcher: str
) -> None:
    found = []
    for sleep_s in (0.0, 0.3):
        file = tmp_path / f"{sleep_s}.json"
        handle = torch_gangs.submit(
            ["python", str(PROGRAM), strategy, str(sleep_s), str(file)],
            launcher=launcher,
            processes_per_node=2,
            env={"PYTHONPATH": str(PROJECT)},
        )
        assert torch_gangs.wait(handle).state is RunState.COMPLETED
        found.append(json.loads(file.read_text()))
    equal, waiting = found
    for each in found:
        assert set(each) == {"compute_s", "exchange_s", "step_s"}
        assert each["compute_s"] + each["exchange_s"] == pytest.approx(each["step_s"], rel=0.03)
    assert waiting["exchange_s"] > 0.7 * waiting["step_s"]
    assert equal["exchange_s"] < 0.7 * waiting["exchange_s"]
    assert waiting["compute_s"] < 0.3 * waiting["step_s"]
