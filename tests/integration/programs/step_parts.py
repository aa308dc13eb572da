"""Trains over Gloo, rank 1 slower than rank 0; writes the parts of rank 0's step beside the whole.

step_parts.py ddp|horovod SLEEP_S FILE    (rank and place by the launcher's variables)
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn

from trainer.common.world import World
from trainer.pytorch.step_parts import StepParts
from trainer.pytorch.strategy import make_strategy

STEPS = 25


def main() -> None:
    name, sleep_s = sys.argv[1], float(sys.argv[2])
    torch.set_num_threads(1)
    world, device = World.from_environment(os.environ), torch.device("cpu")
    strategy = make_strategy(name, world)
    strategy.init(world, device)
    network = nn.Sequential(*(nn.Linear(256, 256) for _ in range(4)))
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-6)
    model, optimizer = strategy.wrap(network, optimizer)
    parts = StepParts(model, optimizer, device, num_ranks=world.size)
    samples = torch.randn(32, 256)
    whole_s = []
    for number in range(STEPS):
        if number == STEPS // 2:
            parts.take()
            whole_s.clear()
        began_s = time.perf_counter()
        with parts.step():
            if world.rank == 1:
                time.sleep(sleep_s)
            model(samples).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        whole_s.append(time.perf_counter() - began_s)
    told = {**parts.take(), "step_s": sum(whole_s) / len(whole_s)}
    if world.rank == 0:
        Path(sys.argv[3]).write_text(json.dumps(told))
    strategy.shutdown()
    os._exit(0)


if __name__ == "__main__":
    main()
