"""Starts a TensorFlow or Keras program as one of the ranks."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import keras

from trainer.common.errors import TrainingError
from trainer.common.options import parse_options
from trainer.common.program import run_ranks
from trainer.common.world import World
from trainer.tf.job import Build, Options
from trainer.tf.loop import MakeDriver, run
from trainer.tf.strategy import Strategy, make_strategy


def run_program(
    kind: type[Options],
    make: MakeDriver,
    argv: Sequence[str] | None = None,
    *,
    program: str,
    description: str | None,
    build: Build | None = None,
    defaults: Sequence[str] = (),
) -> int:
    """Train or predict as one of the ranks; gives the exit code (trainer.common.program).

    `kind` says which options there are, `make` takes the steps, `build` makes the network in place of
    ResNet-50. `program` is its name in results, and `defaults` are flags that come before those of the
    command line.
    """
    given = sys.argv[1:] if argv is None else argv
    text = (description or "").strip().partition("\n")[0]
    options = parse_options(kind, [*defaults, *given], description=text)

    def make_own(world: World) -> Strategy:
        if keras.backend.backend() != "tensorflow":
            message = f"Keras computes with {keras.backend.backend()} here"
            raise TrainingError(message, hint="set KERAS_BACKEND=tensorflow")
        options.require_alone(world.size)
        return make_strategy("single" if options.predict else options.strategy, world)

    return run_ranks(
        options, make_own, lambda ranks: run(program, options, ranks, make, build=build)
    )
