"""What every TensorFlow and Keras program does around its training: the ranks meet and leave."""

from __future__ import annotations

import sys
from collections.abc import Callable

import keras

from trainer.common.errors import TrainingError
from trainer.common.preemption import EXIT_CODE, Notice, Preempted, events_url
from trainer.common.rundir import RunDir
from trainer.common.training_options import TrainingOptions
from trainer.common.world import World
from trainer.tf.strategy import Ranks, StrategyName, make_strategy


def run_program(
    options: TrainingOptions, strategy: StrategyName | None, train: Callable[[Ranks], None]
) -> int:
    """Train as one of the ranks; gives the exit code.

    1 with a message on stderr for what the user can mend, 75 once a checkpoint is written after
    a notice to leave. `train` meets the other ranks by `strategy.init`.
    """
    try:
        if keras.backend.backend() != "tensorflow":
            message = f"Keras computes with {keras.backend.backend()} here"
            raise TrainingError(message, hint="set KERAS_BACKEND=tensorflow")
        world = World.from_environment()
        ranks = Ranks(
            world=world,
            strategy=make_strategy(strategy, world),
            run_dir=RunDir.from_environment(),
            notice=Notice(),
        )
        ranks.notice.watch(scheduled_events=events_url(options.scheduled_events, world))
        try:
            train(ranks)
        finally:
            ranks.strategy.shutdown()
    except TrainingError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1
    except Preempted as leaving:
        print(f"preempted: {leaving}", file=sys.stderr, flush=True)
        return EXIT_CODE
    return 0
