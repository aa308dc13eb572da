"""Starts a TensorFlow or Keras program as one of the ranks."""

from __future__ import annotations

from collections.abc import Callable

import keras

from trainer.common.errors import TrainingError
from trainer.common.program import run_ranks
from trainer.common.training_options import TrainingOptions
from trainer.common.world import World
from trainer.tf.strategy import Ranks, Strategy, StrategyName, make_strategy


def run_program(
    options: TrainingOptions, strategy: StrategyName | None, train: Callable[[Ranks], None]
) -> int:
    """Train as one of the ranks; gives the exit code (trainer.common.program)."""

    def make(world: World) -> Strategy:
        if keras.backend.backend() != "tensorflow":
            message = f"Keras computes with {keras.backend.backend()} here"
            raise TrainingError(message, hint="set KERAS_BACKEND=tensorflow")
        return make_strategy(strategy, world)

    return run_ranks(options, make, train)
