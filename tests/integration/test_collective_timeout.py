"""A trainer's collectives wait for as long as the launcher says, and no longer."""

from __future__ import annotations

from jobs.contracts.spec import RunState
from jobs.images.runtimes import PROJECT
from tests.fakes.gangs import Gangs

WAITING = """
import time
import torch
from trainer.common.world import World
from trainer.pytorch.strategy import Ddp

world, ranks = World.from_environment(), Ddp()
ranks.init(world, torch.device("cpu"))
if world.rank == 1:
    time.sleep(3600)
ranks.sum(torch.ones(1))
"""


def test_rank_gives_up_a_collective_that_another_one_never_comes_to(torch_gangs: Gangs) -> None:
    env = {"PYTHONPATH": str(PROJECT), "TRAINYARD_COLLECTIVE_TIMEOUT_S": "5"}
    handle = torch_gangs.python(WAITING, launcher="torch", env=env)
    assert torch_gangs.wait(handle, 240).state is RunState.FAILED
    assert any("Timed out waiting 5000ms" in line for line in torch_gangs.texts(handle, 0))
