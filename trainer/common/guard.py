"""Saves and stops training at the same step on all ranks: divergence, preemption, full disks."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trainer.common.agreement import accuracy_of, are_failing, are_leaving, judge
from trainer.common.errors import TrainingError
from trainer.common.keeper import CheckpointKeeper
from trainer.common.position import Position, TakenStep
from trainer.common.preemption import Notice, Preempted
from trainer.common.world import World

# Waits for the sums of the ranks' reports, in the order of trainer.common.agreement.REPORT.
ReadSums = Callable[[], list[float]]
# Takes a settled step, its mean loss over all ranks, and the share of samples told right, if known.
OnStep = Callable[[TakenStep, float, float | None], None]


@dataclass(frozen=True, kw_only=True)
class _Pending:
    """An agreement under way."""

    taken: TakenStep
    is_step: bool
    read: ReadSums


class StepGuard:
    """Lets the ranks agree on each step (trainer.common.agreement), one step later.

    Every method is a collective. `on_loss` gets each settled step.
    `hint` is shown where training diverges. A framework's subclass adds the reports up.
    """

    def __init__(
        self,
        world: World,
        notice: Notice,
        keeper: CheckpointKeeper[Any],
        *,
        on_loss: OnStep,
        hint: str,
    ) -> None:
        self._world = world
        self._notice = notice
        self._keeper = keeper
        self._on_loss = on_loss
        self._hint = hint
        self._position = Position()
        self._pending: _Pending | None = None
        self._is_failing = False
        self._host_s = self._read_s = 0.0

    def take_host_s(self) -> float:
        """Give the seconds of this host's own work on agreements since this was asked last.

        That is the report, the verdict and `on_loss`: neither the wait for others, nor checkpoints.
        """
        host_s, self._host_s = self._host_s, 0.0
        return host_s

    def settle(self) -> None:
        """Settle the last step; before anything is saved or evaluated.

        Raises Diverged or TrainingError; once a checkpoint of the last position is on disk, Preempted,
        or TrainingError where a rank cannot go on. On all ranks alike.
        """
        if self._settle_pending():
            self._leave()

    def _after_step(
        self, position: Position, taken: TakenStep, begin: Callable[[], ReadSums]
    ) -> None:
        """Settle the previous step, begin to agree on this one, and save if `position` is due."""
        self._position = position
        # The previous step comes first: no rank may begin what others have left for good.
        began_s, self._read_s = time.perf_counter(), 0.0
        is_last = self._settle_pending()
        self._pending = _Pending(taken=taken, is_step=True, read=begin())
        self._host_s += time.perf_counter() - began_s - self._read_s
        if is_last:
            self._leave()
        if self._keeper.is_due(position):
            self.settle()
            self._keeper.save(position)

    def _between_steps(self, position: Position, begin: Callable[[], ReadSums]) -> None:
        """Settle the previous step, and begin to agree on leaving only."""
        self._position = position
        self.settle()
        taken = TakenStep(step=position.step, epoch=position.epoch, batch=position.batch)
        self._pending = _Pending(taken=taken, is_step=False, read=begin())

    def _flags(self) -> tuple[float, float, float]:
        """Give the last three numbers of REPORT: whether this rank is to leave, cannot go on, cannot save."""
        notice = self._notice
        return (
            float(notice.reason is not None),
            float(notice.failure is not None),
            float(self._keeper.failure),
        )

    def _settle_pending(self) -> bool:
        """Read the sums under way, if there are any; gives whether the ranks are to leave."""
        pending, self._pending = self._pending, None
        if pending is None:
            return False
        began_s = time.perf_counter()
        sums = pending.read()
        self._read_s += time.perf_counter() - began_s
        loss = judge(sums, pending.taken, rank=self._world.rank, hint=self._hint)
        if pending.is_step:
            self._on_loss(pending.taken, loss, accuracy_of(sums))
        self._is_failing |= are_failing(sums)
        return are_leaving(sums)

    def _leave(self) -> None:
        """Write a last checkpoint, and let no rank go before it is on disk."""
        self._settle_pending()  # the last step counts, and may have diverged
        step = self._position.step
        is_kept = self._keeper.save_last(self._position)
        kept = f"checkpoint of step {step} is kept" if is_kept else f"step {step} is not kept"
        if self._is_failing:
            failure = self._notice.failure or TrainingError(
                "another rank cannot go on", hint="that rank's last line says why"
            )
            message = f"{failure.message}; {kept}"
            raise TrainingError(message, hint=failure.hint)
        who = self._notice.reason or "another rank was asked to leave"
        message = f"{who}; {kept}"
        raise Preempted(message)
