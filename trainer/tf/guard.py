"""Adds up the reports of TensorFlow and Keras ranks on each step (trainer.common.guard)."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from trainer.common.agreement import REPORT
from trainer.common.guard import OnStep, ReadSums, StepGuard
from trainer.common.position import Position, TakenStep
from trainer.tf.keeper import Keeper
from trainer.tf.strategy import Ranks


class Guard(StepGuard):
    """Agrees by one small allreduce inside the step's own graph, whoever runs that graph."""

    def __init__(
        self,
        ranks: Ranks,
        keeper: Keeper,
        *,
        on_loss: OnStep,
        hint: str,
    ) -> None:
        super().__init__(ranks.world, ranks.notice, keeper, on_loss=on_loss, hint=hint)
        self._strategy = ranks.strategy
        # What the graph is told of this rank, and what it tells of all of them.
        self._told = (0.0, 0.0, 0.0)
        self._flags_in_graph = tf.Variable(tf.zeros(3, tf.float64), trainable=False)
        self._sums = tf.Variable(tf.zeros(len(REPORT), tf.float64), trainable=False)

    def begin_step(self) -> None:
        """Tell the step's graph whether this rank is to leave, cannot go on, cannot save."""
        flags = self._flags()
        if flags != self._told:
            self._told = flags
            self._flags_in_graph.assign(np.array(flags, np.float64))

    def add_up(self, loss: tf.Tensor, num_samples: int) -> None:
        """Add up the ranks' reports on a step, as a part of its graph.

        `loss` is the mean over this rank's `num_samples`.
        """
        loss_sum = num_samples * tf.cast(loss, tf.float64)
        self._sums.assign(self._add_up(loss_sum, num_samples, self._flags_in_graph))

    def step(self, position: Position, *, taken: TakenStep) -> None:
        """Take the sums of the step just taken, settle the previous one, save if `position` is due.

        Raises what `settle` raises.
        """
        self._after_step(position, taken, lambda: _reader(self._sums.read_value()))

    def check(self, position: Position) -> None:
        """Agree between steps on whether to leave: in an evaluation, equally often on every rank.

        Raises what `settle` raises.
        """
        flags = tf.constant(self._flags(), tf.float64)
        none = tf.zeros((), tf.float64)
        self._between_steps(position, lambda: _reader(self._add_up(none, 1, flags)))

    def _add_up(
        self, loss_sum: tf.Tensor, num_samples: int, flags: tf.Tensor | tf.Variable
    ) -> tf.Tensor:
        is_finite = tf.math.is_finite(loss_sum)
        is_bad = 1 - tf.cast(is_finite, tf.float64)
        own = [
            tf.where(is_finite, loss_sum, tf.zeros_like(loss_sum)),
            tf.constant(num_samples, tf.float64),
            is_bad,
            is_bad * (self._world.rank + 1),
        ]
        return self._strategy.sum(tf.concat([tf.stack(own), flags], axis=0), "report")


def _reader(sums: tf.Tensor) -> ReadSums:
    return lambda: sums.numpy().tolist()
