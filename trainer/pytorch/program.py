"""Starts a PyTorch program as one of the ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch

from trainer.common.errors import TrainingError
from trainer.common.options import MAY_CHANGE
from trainer.common.program import run_ranks
from trainer.common.training_options import DeviceName, PrecisionName, TrainingOptions
from trainer.common.world import Backend, RankArguments, World
from trainer.pytorch.strategy import Ranks, Strategy, StrategyName, make_strategy


@dataclass(frozen=True, kw_only=True)
class TorchOptions(TrainingOptions):
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
    model: Annotated[
        Path | None, "begin from the model that this program wrote into this file", MAY_CHANGE
    ] = None
    evaluate_only: Annotated[
        bool, "evaluate the newest checkpoint, else --model; do not train", MAY_CHANGE
    ] = False
    predict: Annotated[
        Path | None,
        "predict this file, or the files of this folder, by --model; do not train",
        MAY_CHANGE,
    ] = None
    profile: Annotated[
        int, "profile so many steps after the warm-up, into the output `profile`", MAY_CHANGE
    ] = 0
    find_batch: Annotated[
        bool, "tell the largest batch of a step that a GPU's memory holds; do not train", MAY_CHANGE
    ] = False
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

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_positive("epochs", "clip_norm")
        self.require_at_least(0, "profile")
        if self.predict:
            self.saved  # noqa: B018 - there has to be one
        if self.predict and self.evaluate_only:
            message = "--predict and --evaluate-only are two things: give one of them"
            raise ValueError(message)

    @property
    def saved(self) -> Path:
        """The file of the model that --predict uses; raises ValueError where none is given."""
        if self.model is None:
            message = "--predict needs --model FILE, which a training wrote into outputs/model"
            raise ValueError(message)
        return self.model

    @property
    def hint(self) -> str:
        """Advice for a training that diverges."""
        return "a smaller learning rate"


def run_program(options: TorchOptions, train: Callable[[Ranks], None]) -> int:
    """Train or predict as one of the ranks; gives the exit code (trainer.common.program)."""

    def make(world: World) -> Strategy:
        torch.set_num_threads(world.num_threads)
        if options.predict is None:
            return make_strategy(options.strategy, world)
        if world.size > 1:
            message = f"--predict is for one process, and these are {world.size} ranks"
            raise TrainingError(message, hint="start it on one")
        return make_strategy("single", world)

    arguments = RankArguments(
        dist_backend=options.dist_backend,
        dist_url=options.dist_url,
        rank=options.rank,
        world_size=options.world_size,
    )
    return run_ranks(options, make, train, arguments)
