"""A trainer's collectives wait for as long as the launcher says, and no longer."""

from __future__ import annotations

from pathlib import Path

from tests.busy import HANG_S
from tests.fakes.torch_ranks import Zygote, start_gang

PROGRAM = "tests.integration.programs.late_rank"


def test_rank_gives_up_a_collective_that_another_one_never_comes_to(
    zygote: Zygote, tmp_path: Path
) -> None:
    env = {"TRAINYARD_COLLECTIVE_TIMEOUT_S": "2"}
    gang = start_gang(zygote, [PROGRAM], strategy="ddp", size=2, folder=tmp_path, env=env)
    try:
        assert zygote.wait(gang.pids[:1], HANG_S), gang.texts()
        assert gang.codes() == [1, None]
        assert "Timed out waiting 2000ms" in gang.texts()[0]
    finally:
        gang.end()
