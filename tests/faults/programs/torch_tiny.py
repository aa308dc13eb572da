"""A net with batch statistics and dropout, trained in a second through the trainers' own parts.

Its shape is that of trainer.pytorch.mnist; the data are made from the seed. `--scaler` scales the
loss as fp16 does, so that gradients can overflow.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import nn
from torch.nn import functional

from trainer.common.options import parse_options
from trainer.common.position import Position, TakenStep
from trainer.common.sharding import shard, shuffled_batches
from trainer.pytorch.buffers import average_buffers
from trainer.pytorch.features import Features
from trainer.pytorch.guard import Guard
from trainer.pytorch.keeper import Keeper, Trainable
from trainer.pytorch.precision import take_step
from trainer.pytorch.program import TorchOptions, run_program
from trainer.pytorch.strategy import Ranks

CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True)
class Options(TorchOptions):
    epochs: Annotated[int, "passes over the data"] = 4
    batch_size: Annotated[int, "samples a step, over all ranks together"] = 10
    num_samples: Annotated[int, "samples of an epoch"] = 250
    scaler: Annotated[bool, "scale the loss"] = False


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_options(Options, argv)
    return run_program(options, lambda ranks: train(options, ranks))


def build_network() -> nn.Module:
    return nn.Sequential(
        nn.Linear(8, 32),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(32, 3),
    )


def make_rows(options: Options) -> Features:
    generator = torch.Generator().manual_seed(options.seed)
    inputs = torch.randn(options.num_samples, 8, generator=generator)
    return Features(inputs, inputs[:, :3].argmax(dim=1))


def train(options: Options, ranks: Ranks) -> None:
    world, strategy = ranks.world, ranks.strategy
    strategy.init(world, CPU)
    torch.manual_seed(options.seed)
    network, rows = build_network(), make_rows(options)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    model, optimizer = strategy.wrap(network, optimizer)
    torch.manual_seed(1000 + world.rank)
    scaler = torch.amp.GradScaler("cpu") if options.scaler else None
    keeper = Keeper(
        Trainable(network=network, optimizer=optimizer, device=CPU, scaler=scaler),
        ranks,
        options=options,
        recipe={"program": "tiny", "batch_size": options.batch_size, "seed": options.seed},
    )
    position = keeper.restore(options.epochs)
    losses: list[float] = []
    guard = Guard(
        ranks,
        CPU,
        keeper,
        on_loss=lambda _place, loss, _right: losses.append(loss),
        hint="be careful",
    )
    with contextlib.closing(keeper):
        while position.epoch < options.epochs:
            if position.epoch and not position.batch:
                average_buffers(network, strategy, world)
            position = train_epoch(options, ranks, rows, model, optimizer, scaler, position, guard)
    strategy.barrier()
    if world.is_main:
        ranks.run_dir.write_summary({"losses": losses, **keeper.figures()})


def train_epoch(
    options: Options,
    ranks: Ranks,
    rows: Features,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler | None,
    position: Position,
    guard: Guard,
) -> Position:
    model.train()
    num_batches = math.ceil(options.num_samples / options.batch_size)
    order = shuffled_batches(
        options.num_samples, options.batch_size, seed=options.seed, epoch=position.epoch + 1
    )
    batches = itertools.islice(order, position.batch, None)
    for number, batch in enumerate(batches, position.batch + 1):
        mine = shard(batch, ranks.world)
        (part,) = rows.batches([mine])
        loss_sum = functional.cross_entropy(model(part.images), part.labels, reduction="sum")
        loss = loss_sum * (ranks.world.size / len(batch))
        optimizer.zero_grad()
        (loss if scaler is None else scaler.scale(loss)).backward()
        take_step(optimizer, strategy=ranks.strategy, scaler=scaler)
        taken = TakenStep(
            step=position.step + 1, epoch=position.epoch + 1, batch=number, samples=mine
        )
        position = position.after_batch(num_batches)
        guard.step(position, loss_sum, len(mine), taken=taken)
    guard.settle()
    return position


if __name__ == "__main__":
    sys.exit(main())
