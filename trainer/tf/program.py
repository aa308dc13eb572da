"""Starts a TensorFlow or Keras program as one of the ranks."""

from __future__ import annotations

import keras

from trainer.common.errors import TrainingError
from trainer.common.program import run_ranks
from trainer.common.world import World
from trainer.tf.job import Build, Options
from trainer.tf.loop import MakeDriver, run
from trainer.tf.strategy import Strategy, make_strategy


def run_program(
    options: Options, make: MakeDriver, *, program: str, build: Build | None = None
) -> int:
    """Train or predict as one of the ranks; gives the exit code (trainer.common.program).

    `make` takes the steps, `build` makes the network in place of ResNet-50.
    """

    def make_own(world: World) -> Strategy:
        if keras.backend.backend() != "tensorflow":
            message = f"Keras computes with {keras.backend.backend()} here"
            raise TrainingError(message, hint="set KERAS_BACKEND=tensorflow")
        options.require_alone(world.size)
        return make_strategy("single" if options.predict else options.strategy, world)

    return run_ranks(
        options, make_own, lambda ranks: run(program, options, ranks, make, build=build)
    )
