"""What Horovod and the ranks' agreement costs one rank: prints a step's time beside a plain one's.

    tax_torch.py --with horovod|agreement|ddp [--net mnist] [--batch 64] [--rounds N]

Both kinds of step are taken in turn in one process; what is printed is the ratio of the medians.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from steps_torch import CPU, NETS, make_batch, take_step

from trainer.common.position import Position, TakenStep
from trainer.common.preemption import Notice
from trainer.common.rundir import RunDir
from trainer.common.training_options import TrainingOptions
from trainer.common.world import World
from trainer.pytorch.guard import Guard
from trainer.pytorch.keeper import Keeper, Trainable
from trainer.pytorch.strategy import Ranks, make_strategy

STEPS = 10  # between two looks at the clock


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--with", dest="what", choices=["horovod", "ddp", "agreement"])
    parser.add_argument("--net", choices=NETS, default="mnist")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    images, labels = make_batch(options.net, options.batch)
    plain, taxed = make_steps(options.net, None), make_steps(options.net, options.what)
    times_s: dict[Callable[..., None], list[float]] = {plain: [], taxed: []}
    for number in range(-2, options.rounds):
        for steps, found in times_s.items():
            began_s = time.perf_counter()
            steps(images, labels)
            if number >= 0:
                found.append(time.perf_counter() - began_s)
    print(statistics.median(times_s[taxed]) / statistics.median(times_s[plain]))


def make_steps(net: str, what: str | None) -> Callable[..., None]:
    """Give what takes STEPS steps with a network of its own."""
    torch.manual_seed(1)
    network = NETS[net][0]()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    world = World()
    strategy = make_strategy("single" if what in (None, "agreement") else what, world)
    strategy.init(world, CPU)
    model, optimizer = strategy.wrap(network, optimizer)
    ranks = Ranks(
        world=world, strategy=strategy, run_dir=RunDir.from_environment({}), notice=Notice()
    )
    keeper = Keeper(
        Trainable(network=network, optimizer=optimizer, device=CPU),
        ranks,
        options=TrainingOptions(),
        recipe={},
    )
    guard = Guard(ranks, CPU, keeper, on_loss=lambda _place, _loss, _right: None, hint="")

    def steps(images: torch.Tensor, labels: torch.Tensor) -> None:
        for number in range(STEPS):
            loss = take_step(model, optimizer, images, labels)
            if what == "agreement":
                taken = TakenStep(step=number, epoch=1, batch=number)
                guard.step(Position(step=number), loss, len(images), taken=taken)

    return steps


if __name__ == "__main__":
    main()
