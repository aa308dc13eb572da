"""Trains over Gloo; writes the parts of rank 0's step beside the whole.

Ranks alike, then rank 1 slower, then alike with a DDP that timed a step longer than the others.

main([FILE, "--strategy", ddp|horovod, ...])    (rank by the launcher's variables)
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from trainer.common.world import World
from trainer.pytorch.step_parts import StepParts
from trainer.pytorch.strategy import make_strategy

# DDP times each of the first ten, then every tenth: one of the second half of each turn.
STEPS = 11
SLEEPS_S = (0.0, 0.6, 0.0)
LONG_NS = {"backward_comm_time": 9 * 10**9, "backward_compute_comm_overlap_time": 10**9}


def main(argv: Sequence[str]) -> None:
    """Train, each of SLEEPS_S for some steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--strategy")
    parser.add_argument("--dist-url")
    given = parser.parse_args(argv)
    torch.set_num_threads(1)
    world, device = World.from_environment(os.environ), torch.device("cpu")
    if given.dist_url:
        world = replace(world, url=given.dist_url)
    strategy = make_strategy(given.strategy, world)
    strategy.init(world, device)
    network = nn.Sequential(*(nn.Linear(256, 256) for _ in range(4)))
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-6)
    model, optimizer = strategy.wrap(network, optimizer)
    parts = StepParts(model, optimizer, device, num_ranks=world.size)
    samples = torch.randn(32, 256)
    told: list[dict[str, float]] = []
    for turn, sleep_s in enumerate(SLEEPS_S):
        if turn == 2 and given.strategy == "ddp":
            model._get_ddp_logging_data = lambda: LONG_NS
        whole_s: list[float] = []
        for number in range(STEPS):
            if number == STEPS // 2:
                parts.take()
                whole_s.clear()
            began_s = time.perf_counter()
            with parts.step():
                if world.rank == 1 and number >= STEPS // 2:
                    time.sleep(sleep_s)
                model(samples).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            whole_s.append(time.perf_counter() - began_s)
        told.append({**parts.take(), "step_s": sum(whole_s) / len(whole_s)})
    if world.rank == 0:
        given.file.write_text(json.dumps(told))
    strategy.shutdown()
    os._exit(0)
