"""Saves a PyTorch training's state in checkpoints, and restores it on every rank."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainer.common.keeper import CheckpointKeeper
from trainer.common.position import Position
from trainer.common.training_options import TrainingOptions
from trainer.pytorch.state import (
    Tensors,
    rank_state,
    read_files,
    restore_rank_state,
    restore_snapshot,
    take_snapshot,
)
from trainer.pytorch.strategy import Ranks


@dataclass(frozen=True, kw_only=True)
class Trainable:
    """The state that training changes; `network` is the model unwrapped."""

    network: nn.Module
    optimizer: Optimizer
    device: torch.device
    scaler: torch.amp.GradScaler | None = None


class Keeper(CheckpointKeeper[Tensors]):
    """Saves and restores network, optimizer, AMP scaler, generators and batch statistics."""

    def __init__(
        self,
        trained: Trainable,
        ranks: Ranks,
        *,
        options: TrainingOptions,
        recipe: Mapping[str, object],
        rate: Callable[[Position], float] | None = None,
    ) -> None:
        super().__init__(ranks.world, ranks.run_dir, options=options, recipe=recipe, rate=rate)
        self._trained = trained
        self._strategy = ranks.strategy

    def _gather_ranks(self) -> Tensors:
        gathered: Tensors = {}
        for key, value in rank_state(self._trained.network, self._trained.device).items():
            if not value.numel():
                parts = [value] * self._world.size
            else:
                parts = self._strategy.gather(value.to(self._trained.device))
            for rank, part in enumerate(parts):
                gathered[f"{rank}/{key}"] = part.cpu().contiguous()
        return gathered

    def _copy(self, ranks: Tensors) -> Callable[[], Mapping[str, bytes]]:
        snapshot = take_snapshot(
            self._trained.network,
            self._trained.optimizer,
            ranks=ranks,
            scaler=self._trained.scaler,
        )
        return snapshot.files

    def _put_back(self, files: Mapping[str, bytes], *, was_size: int, position: Position) -> None:
        snapshot = read_files(files)
        restore_snapshot(
            snapshot,
            self._trained.network,
            self._trained.optimizer,
            scaler=self._trained.scaler,
        )
        if was_size == self._world.size:
            own = self._own_of(snapshot.ranks)
        else:
            own = self._mean_of_ranks(snapshot.ranks, was_size, position)
        restore_rank_state(own, self._trained.network, self._trained.device)

    def _mean_of_ranks(self, ranks: Tensors, was_size: int, position: Position) -> Tensors:
        """Average the ranks' batch statistics, and seed another random stream for each new rank."""
        buffers = torch.stack([ranks[f"{rank}/buffers"] for rank in range(was_size)])
        mean = buffers.double().mean(dim=0).to(buffers.dtype)
        seed = random.Random(f"{self._seed}/{position.step}/{self._world.rank}")
        torch.manual_seed(seed.getrandbits(63))
        return {"rng": torch.get_rng_state(), "buffers": mean}

    def _tell(self, data: bytes) -> bytes:
        mine = torch.tensor(list(data), dtype=torch.uint8, device=self._trained.device)
        return bytes(self._strategy.gather(mine)[0].tolist())

    def _count(self, number: int) -> int:
        mine: Tensor = torch.tensor([float(number)], device=self._trained.device)
        return round(self._strategy.sum(mine).item())
