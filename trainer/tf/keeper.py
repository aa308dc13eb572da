"""Saves a TensorFlow or Keras training's state in checkpoints, and restores it on every rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import keras
import numpy as np
import tensorflow as tf

from trainer.common.keeper import CheckpointKeeper
from trainer.common.position import Position
from trainer.common.training_options import TrainingOptions
from trainer.tf.state import (
    Arrays,
    rank_state,
    read_files,
    restore_rank_state,
    restore_snapshot,
    seed_generators,
    take_snapshot,
    write_statistics,
)
from trainer.tf.strategy import Ranks


class Keeper(CheckpointKeeper[Arrays]):
    """Saves and restores network, optimizer, generators and batch statistics.

    The optimizer must be built.
    """

    def __init__(
        self,
        network: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        ranks: Ranks,
        *,
        options: TrainingOptions,
        recipe: Mapping[str, object],
        rate: Callable[[Position], float] | None = None,
    ) -> None:
        super().__init__(ranks.world, ranks.run_dir, options=options, recipe=recipe, rate=rate)
        self._network = network
        self._optimizer = optimizer
        self._strategy = ranks.strategy

    def _gather_ranks(self) -> Arrays:
        gathered: Arrays = {}
        for key, value in rank_state(self._network).items():
            parts = self._strategy.gather(value) if value.size else [value] * self._world.size
            for rank, part in enumerate(parts):
                gathered[f"{rank}/{key}"] = np.array(part, order="C")
        return gathered

    def _copy(self, ranks: Arrays) -> Callable[[], Mapping[str, bytes]]:
        return take_snapshot(self._network, self._optimizer, ranks=ranks).files

    def _put_back(self, files: Mapping[str, bytes], *, was_size: int, position: Position) -> None:
        snapshot = read_files(files)
        restore_snapshot(snapshot, self._network, self._optimizer)
        if was_size == self._world.size:
            restore_rank_state(self._own_of(snapshot.ranks), self._network)
            return
        # Batch statistics: the mean of the ranks'. Dropout: another stream for each new rank.
        found = [snapshot.ranks[f"{rank}/buffers"] for rank in range(was_size)]
        mean = np.mean(found, axis=0, dtype=np.float64)
        write_statistics(self._network, mean)
        seed_generators(self._network, f"{self._seed}/{position.step}/{self._world.rank}")

    def _tell(self, data: bytes) -> bytes:
        return self._strategy.gather(np.frombuffer(data, np.uint8))[0].tobytes()

    def _count(self, number: int) -> int:
        return round(float(self._strategy.sum(tf.constant(float(number)), "count")))
