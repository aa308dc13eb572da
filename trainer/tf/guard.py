"""Adds up the reports of TensorFlow and Keras ranks on each step (trainer.common.guard)."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from trainer.common.guard import OnStep, ReadSums, StepGuard
from trainer.common.position import Position, TakenStep
from trainer.tf.keeper import Keeper
from trainer.tf.strategy import Ranks


class Guard(StepGuard):
    """Agrees by one small allreduce, inside the step's own graph where there is one."""

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

    def flags(self) -> np.ndarray:
        """Give the last two numbers of REPORT: whether this rank is to leave, and cannot save."""
        return np.array(self._flags(), np.float64)

    def add_up(self, loss_sum: tf.Tensor, num_samples: int, flags: tf.Tensor) -> tf.Tensor:
        """Add up the ranks' numbers on a step; may be a part of the step's own graph.

        `loss_sum` is over this rank's `num_samples`.
        """
        loss_sum = tf.cast(loss_sum, tf.float64)
        is_finite = tf.math.is_finite(loss_sum)
        is_bad = 1 - tf.cast(is_finite, tf.float64)
        own = [
            tf.where(is_finite, loss_sum, tf.zeros_like(loss_sum)),
            tf.constant(num_samples, tf.float64),
            is_bad,
            is_bad * (self._world.rank + 1),
        ]
        return self._strategy.sum(tf.concat([tf.stack(own), flags], axis=0), "report")

    def step(self, position: Position, sums: tf.Tensor, *, taken: TakenStep) -> None:
        """Take the sums of the step just taken, settle the previous one, save if `position` is due.

        Raises what `settle` raises.
        """
        self._after_step(position, taken, lambda: _reader(sums))

    def check(self, position: Position) -> None:
        """Agree between steps on whether to leave: in an evaluation, equally often on every rank.

        Raises what `settle` raises.
        """
        self._between_steps(
            position,
            lambda: _reader(self.add_up(tf.zeros((), tf.float64), 1, tf.constant(self.flags()))),
        )


def _reader(sums: tf.Tensor) -> ReadSums:
    return lambda: sums.numpy().tolist()
