"""Loads a data set whose samples draw by every global generator, by own.main's task -> JSON."""

from __future__ import annotations

import dataclasses
import json
import random
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from trainer.common.options import parse_options
from trainer.common.position import Position
from trainer.common.preemption import Notice
from trainer.common.program import RanksOf
from trainer.common.rundir import RunDir
from trainer.common.world import World
from trainer.pytorch import own
from trainer.pytorch.strategy import Single
from trainer.pytorch.whole_samples import Samples

NUM_SAMPLES = 12


class Drawn:
    """Samples that are drawn; one of them is corrupt after it has drawn."""

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        drawn = [torch.rand(()).item(), random.random(), np.random.rand()]
        if index == 5:
            raise OSError("cut off")
        return torch.tensor(drawn), torch.tensor([float(index)])


class AlwaysDrops(nn.Module):
    """Drops in evaluations, too, as a network does that samples its own uncertainty."""

    def forward(self, values: Tensor) -> Tensor:
        """Draw by each generator."""
        return nn.functional.dropout(values) * random.random() * np.random.rand()


DRAWN = own.Own(
    name="drawn",
    build=lambda: nn.Linear(3, 1),
    data=lambda _: (Drawn(), Drawn()),
    loss=nn.functional.mse_loss,
    figures=lambda outputs, _: {"sum": outputs[:, 0]},
    main="sum",
)


def task_of(
    *arguments: str, rank: int = 0, size: int = 1, described: own.Own = DRAWN
) -> own.OwnTask:
    """A task whose data are open, as one of the ranks."""
    options = parse_options(own.Options, ["--batch-size", "4", "--device", "cpu", *arguments])
    ranks: Any = RanksOf(
        world=World(rank=rank, size=size),
        strategy=Single(),
        run_dir=RunDir.from_environment({"TRAINYARD_RUN_DIR": "run"}),
        notice=Notice(),
    )
    task = own.OwnTask(options, ranks, described)
    task.prepare()
    return task


def drawn(
    *arguments: str, epoch: int = 0, batch: int = 0, rank: int = 0, size: int = 1
) -> dict[int, Any]:
    """What each sample of the rest of an epoch drew."""
    found: dict[int, Any] = {}
    task = task_of(*arguments, rank=rank, size=size)
    for part in task.batches(Position(step=3 * epoch + batch, epoch=epoch, batch=batch)):
        found |= zip(part.samples, part.batch[0].tolist(), strict=True)
    return found


def states() -> tuple[object, ...]:
    """Where the global generators of this process stand."""
    numbers = np.random.get_state()
    return torch.get_rng_state().tolist(), random.getstate(), [str(each) for each in numbers]


def evaluated(task: own.OwnTask, epoch: int) -> dict[str, float]:
    """The figures of the validation set, by a network that always is the same."""
    network = nn.Linear(3, 1)
    nn.init.ones_(network.weight)
    nn.init.zeros_(network.bias)
    guard: Any = types.SimpleNamespace(check=lambda _: None, settle=lambda: None)
    return task.evaluate(network, guard, Position(step=3 * epoch, epoch=epoch))


def samples_of_steps(*arguments: str, rank: int = 0, size: int = 1) -> list[list[int]]:
    """Give the samples of each part of an epoch."""
    task = task_of("--workers", "0", *arguments, rank=rank, size=size)
    return [list(part.samples) for part in task.batches(Position())]


def split() -> list[list[int]]:
    """Which samples a data set that splits by each global generator gives to train on, in what order."""
    made: list[list[int]] = []

    def data(_seed: int) -> tuple[Samples, Samples]:
        order = list(range(NUM_SAMPLES))
        random.shuffle(order)
        made.extend(
            [
                order,
                np.random.permutation(NUM_SAMPLES).tolist(),
                torch.randperm(NUM_SAMPLES).tolist(),
            ]
        )
        return Drawn(), Drawn()

    task_of(described=dataclasses.replace(DRAWN, data=data))
    return made


def asks_apart() -> bool:
    """Whether a network that draws while it is asked for figures leaves the generators as they were."""
    drawing = nn.Sequential(nn.Linear(3, 1), AlwaysDrops())
    described = dataclasses.replace(DRAWN, build=lambda: drawing)
    task = task_of(described=described)
    before = states()
    task.begin(task.build(), Position())
    return states() == before and task.corrupt.num_skipped == 0


def splits() -> dict[str, Any]:
    """The splits of two processes, whose generators begin where each process's begin."""
    found: list[list[list[int]]] = []
    stay: list[bool] = []
    for process in (1, 2):
        random.seed(process)
        np.random.seed(process)
        torch.manual_seed(process)
        before = states()
        found.append(split())
        stay.append(states() == before)
    return {"first": found[0], "second": found[1], "generators stay": all(stay)}


def main(_argv: Sequence[str] = ()) -> None:
    """Print the draws of each epoch, with and without workers, on ranks, and after a resume."""
    Path("run").mkdir()
    before = states()
    found: dict[str, Any] = {"epoch 1": drawn("--workers", "0")}
    found["generators stay"] = states() == before
    found |= {
        "splits": splits(),
        "whole": samples_of_steps("--batch-size", "8"),
        "parts": [
            samples_of_steps("--batch-size", "4", "--accumulate", "2", rank=rank, size=2)
            for rank in (0, 1)
        ],
        "asks apart": asks_apart(),
        "epoch 2": drawn("--workers", "0", epoch=1),
        "seed 2": drawn("--workers", "0", "--seed", "2"),
        "1 worker": drawn("--workers", "1"),
        "2 workers": drawn("--workers", "2"),
        "epoch 2, 1 worker": drawn("--workers", "1", epoch=1),
        "resumed": drawn("--workers", "0", batch=1),
        "resumed, 2 workers": drawn("--workers", "2", batch=1),
        "ranks": [drawn("--workers", str(rank), rank=rank, size=2) for rank in (0, 1)],
        "evaluated": [
            evaluated(task_of("--workers", workers), epoch)
            for workers, epoch in (("0", 1), ("0", 2), ("1", 2))
        ],
    }
    print(json.dumps(found))
