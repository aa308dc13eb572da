"""The exchange of a step is measured: what a slower rank makes the others wait is no compute."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fakes.torch_ranks import Strategy, Zygote, start_gang

PROGRAM = "tests.integration.programs.step_parts"
RUN_TIMEOUT_S = 300


@pytest.mark.parametrize("strategy", ["ddp", "horovod"])
def test_what_a_slower_rank_makes_others_wait_is_exchange(
    zygote: Zygote, tmp_path: Path, strategy: Strategy
) -> None:
    file = tmp_path / "parts.json"
    folder = tmp_path / "run"
    gang = start_gang(zygote, [PROGRAM, str(file)], strategy=strategy, size=2, folder=folder)
    assert gang.wait(RUN_TIMEOUT_S) == [0, 0], gang.texts()
    gang.end()
    equal, waiting, one_long = json.loads(file.read_text())
    for each in (equal, waiting, one_long):
        assert set(each) == {"compute_s", "exchange_s", "step_s"}
        assert each["compute_s"] + each["exchange_s"] <= each["step_s"]
    assert waiting["compute_s"] + waiting["exchange_s"] == pytest.approx(
        waiting["step_s"], rel=0.03
    )
    assert waiting["exchange_s"] > 0.7 * waiting["step_s"]
    assert equal["exchange_s"] < 0.7 * waiting["exchange_s"]
    assert waiting["compute_s"] < 0.3 * waiting["step_s"]
    if strategy == "ddp":
        assert one_long["compute_s"] == 0.0
