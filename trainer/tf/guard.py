"""Sees to it that the ranks save and stop at the same step: divergence, preemption, full disks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from trainer.common.position import Position
from trainer.common.preemption import Preempted
from trainer.common.vote import Place, judge
from trainer.tf.keeper import Keeper
from trainer.tf.strategy import Ranks


@dataclass(frozen=True, kw_only=True)
class _Pending:
    """A vote that nobody has looked at yet."""

    place: Place
    is_step: bool
    sums: tf.Tensor


class Guard:
    """The ranks' votes on each step (trainer.common.vote), looked at one step later.

    Every method but `flags` is a collective. `on_loss` gets each settled step's place and its mean
    loss over all ranks. `hint` is told to those whose training diverges.
    """

    def __init__(
        self, ranks: Ranks, keeper: Keeper, *, on_loss: Callable[[Place, float], None], hint: str
    ) -> None:
        self._ranks = ranks
        self._keeper = keeper
        self._on_loss = on_loss
        self._hint = hint
        self._position = Position()
        self._pending: _Pending | None = None

    def flags(self) -> np.ndarray:
        """What this rank knows beside its loss: whether it is to leave, and cannot save."""
        is_leaving = self._ranks.notice.reason is not None
        return np.array([is_leaving, self._keeper.has_failed], np.float64)

    def vote(self, loss_sum: tf.Tensor, num_samples: int, flags: tf.Tensor) -> tf.Tensor:
        """Add up the ranks' numbers on a step; a part of the step's own graph where there is one.

        `loss_sum` is over this rank's `num_samples`.
        """
        loss_sum = tf.cast(loss_sum, tf.float64)
        is_finite = tf.math.is_finite(loss_sum)
        is_bad = 1 - tf.cast(is_finite, tf.float64)
        own = [
            tf.where(is_finite, loss_sum, tf.zeros_like(loss_sum)),
            tf.constant(num_samples, tf.float64),
            is_bad,
            is_bad * (self._ranks.world.rank + 1),
        ]
        return self._ranks.strategy.sum(tf.concat([tf.stack(own), flags], axis=0), "vote")

    def step(self, position: Position, sums: tf.Tensor, *, place: Place) -> None:
        """Take the vote on the step just taken, settle the one before, save if `position` is due.

        Raises Diverged or TrainingError, and Preempted once a checkpoint of `position` is on disk;
        on all ranks alike.
        """
        self._position = position
        before, self._pending = self._pending, _Pending(place=place, is_step=True, sums=sums)
        try:
            self._judge(before)
            if self._keeper.is_due(position):
                self._judge_last()
                self._keeper.save(position)
        except Preempted:
            self._leave()

    def check(self, position: Position) -> None:
        """Vote between steps on whether to leave: in an evaluation, equally often on every rank.

        Raises what `step` raises, Preempted once a checkpoint of `position` is on disk.
        """
        self._position = position
        place = Place(step=position.step, epoch=position.epoch, batch=position.batch)
        sums = self.vote(tf.zeros((), tf.float64), 1, tf.constant(self.flags()))
        before, self._pending = self._pending, _Pending(place=place, is_step=False, sums=sums)
        try:
            self._judge(before)
        except Preempted:
            self._leave()

    def settle(self) -> None:
        """Settle the last step; before anything is saved or evaluated. Raises what `step` raises."""
        try:
            self._judge_last()
        except Preempted:
            self._leave()

    def _leave(self) -> None:
        """Write a last checkpoint, and let no rank go before it is on disk."""
        with contextlib.suppress(Preempted):  # the last step may have diverged
            self._judge_last()
        step = self._position.step
        is_kept = self._keeper.save_last(self._position)
        who = self._ranks.notice.reason or "another rank was asked to leave"
        kept = f"checkpoint of step {step} is kept" if is_kept else f"step {step} is not kept"
        message = f"{who}; {kept}"
        raise Preempted(message)

    def _judge_last(self) -> None:
        before, self._pending = self._pending, None
        self._judge(before)

    def _judge(self, pending: _Pending | None) -> None:
        if pending is None:
            return
        sums = pending.sums.numpy().tolist()
        loss = judge(sums, pending.place, rank=self._ranks.world.rank, hint=self._hint)
        if pending.is_step:
            self._on_loss(pending.place, loss)
