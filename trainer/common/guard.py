"""Sees to it that the ranks save and stop at the same step: divergence, preemption, full disks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trainer.common.keeper import CheckpointKeeper
from trainer.common.position import Position
from trainer.common.preemption import Notice, Preempted
from trainer.common.vote import Place, judge
from trainer.common.world import World

# Waits for a vote's sums, in the order of trainer.common.vote.VOTE.
ReadSums = Callable[[], list[float]]


@dataclass(frozen=True, kw_only=True)
class _Pending:
    """A vote under way."""

    place: Place
    is_step: bool
    read: ReadSums


class StepGuard:
    """The ranks' votes on each step (trainer.common.vote), looked at one step later.

    Every method is a collective. `on_loss` gets each settled step's place and its mean loss over
    all ranks. `hint` is told to those whose training diverges. How a vote is cast is a framework's.
    """

    def __init__(
        self,
        world: World,
        notice: Notice,
        keeper: CheckpointKeeper[Any],
        *,
        on_loss: Callable[[Place, float], None],
        hint: str,
    ) -> None:
        self._world = world
        self._notice = notice
        self._keeper = keeper
        self._on_loss = on_loss
        self._hint = hint
        self._position = Position()
        self._pending: _Pending | None = None

    def settle(self) -> None:
        """Settle the last step; before anything is saved or evaluated.

        Raises Diverged or TrainingError, and Preempted once a checkpoint of the last position is on
        disk; on all ranks alike.
        """
        if self._are_leaving():
            self._leave()

    def _after_step(self, position: Position, place: Place, begin: Callable[[], ReadSums]) -> None:
        """Settle the step before, begin the vote on this one, and save if `position` is due."""
        self._position = position
        # The votes before come first: no rank may begin what others have left for good.
        are_leaving = self._are_leaving()
        self._pending = _Pending(place=place, is_step=True, read=begin())
        if are_leaving:
            self._leave()
        if self._keeper.is_due(position):
            self.settle()
            self._keeper.save(position)

    def _between_steps(self, position: Position, begin: Callable[[], ReadSums]) -> None:
        """Settle the vote before, and begin one that is only about leaving."""
        self._position = position
        self.settle()
        place = Place(step=position.step, epoch=position.epoch, batch=position.batch)
        self._pending = _Pending(place=place, is_step=False, read=begin())

    def _flags(self) -> tuple[float, float]:
        """What this rank knows beside its loss: whether it is to leave, and cannot save."""
        return float(self._notice.reason is not None), float(self._keeper.failure)

    def _are_leaving(self) -> bool:
        """Look at the vote under way, if there is one; gives whether the ranks are to leave."""
        pending, self._pending = self._pending, None
        if pending is None:
            return False
        try:
            loss = judge(pending.read(), pending.place, rank=self._world.rank, hint=self._hint)
        except Preempted:
            return True
        if pending.is_step:
            self._on_loss(pending.place, loss)
        return False

    def _leave(self) -> None:
        """Write a last checkpoint, and let no rank go before it is on disk."""
        self._are_leaving()  # the last step may have diverged
        step = self._position.step
        is_kept = self._keeper.save_last(self._position)
        who = self._notice.reason or "another rank was asked to leave"
        kept = f"checkpoint of step {step} is kept" if is_kept else f"step {step} is not kept"
        message = f"{who}; {kept}"
        raise Preempted(message)
