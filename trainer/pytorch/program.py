"""Starts a PyTorch program as one of the ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import torch

from trainer.common.model_options import ModelOptions
from trainer.common.options import MAY_CHANGE
from trainer.common.program import run_ranks
from trainer.common.training_options import DeviceName, PrecisionName
from trainer.common.world import Backend, RankArguments, World
from trainer.pytorch.strategy import Ranks, Strategy, StrategyName, make_strategy


@dataclass(frozen=True, kw_only=True)
class RankOptions:
    """Options of every program whose ranks meet by torch.distributed."""

    dist_backend: Annotated[
        Backend | None, "backend by which DDP's ranks communicate", MAY_CHANGE
    ] = None
    dist_url: Annotated[
        str | None,
        "where DDP's ranks meet, tcp://HOST:PORT or file:///FILE; else MASTER_ADDR",
        MAY_CHANGE,
    ] = None
    rank: Annotated[int | None, "rank of this process, from 0 (default: RANK)", MAY_CHANGE] = None
    world_size: Annotated[int | None, "number of ranks (default: WORLD_SIZE)", MAY_CHANGE] = None

    @property
    def ranks(self) -> RankArguments:
        """What the command line says of this rank and of where it meets the others."""
        return RankArguments(
            dist_backend=self.dist_backend,
            dist_url=self.dist_url,
            rank=self.rank,
            world_size=self.world_size,
        )


@dataclass(frozen=True, kw_only=True)
class TorchOptions(RankOptions, ModelOptions):
    """Options that all PyTorch programs have; a program's own extend it."""

    strategy: Annotated[StrategyName | None, "how ranks work together", MAY_CHANGE] = None
    device: Annotated[DeviceName, "device to compute on", MAY_CHANGE] = "auto"
    precision: Annotated[
        PrecisionName, "precision of the network's arithmetic; weights are fp32"
    ] = "fp32"
    epochs: Annotated[int, "passes over the training set", MAY_CHANGE] = 8
    clip_norm: Annotated[float | None, "largest norm of all gradients together"] = None
    sync_batch_norm: Annotated[
        bool, "batch norms see the samples of all ranks, not of their own alone"
    ] = False
    find_batch: Annotated[
        bool,
        "tell about the largest batch of a step that a GPU's memory holds; do not train",
        MAY_CHANGE,
    ] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_positive("epochs", "clip_norm")

    @property
    def hint(self) -> str:
        """Advice for a training that diverges."""
        lr: float | None = getattr(self, "lr", None)
        return "a smaller learning rate" if lr is None else f"a smaller --lr than {lr:g}"


@dataclass(frozen=True, kw_only=True)
class StepOptions(TorchOptions):
    """Options of programs whose steps may have several batches, and whose weights are averaged."""

    accumulate: Annotated[
        int, "batches whose gradients make one step: batches of many GPUs on one", MAY_CHANGE
    ] = 1
    ema: Annotated[
        float | None, "decay of the weights' moving average, which is evaluated and kept"
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_positive("accumulate")
        if self.ema is not None and not 0 < self.ema < 1:
            message = f"--ema must be between 0 and 1, not {self.ema:g}"
            raise ValueError(message)


def run_program(options: TorchOptions, train: Callable[[Ranks], None]) -> int:
    """Train or predict as one of the ranks; gives the exit code (trainer.common.program)."""

    def make(world: World) -> Strategy:
        torch.set_num_threads(world.num_threads)
        options.require_alone(world.size)
        return make_strategy("single" if options.predict else options.strategy, world)

    return run_ranks(options, make, train, options.ranks)
