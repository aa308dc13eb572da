"""Sees to it that PyTorch ranks save and stop at the same step: divergence, preemption, full disks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from trainer.common.position import Position
from trainer.common.preemption import Preempted
from trainer.common.vote import Place, judge
from trainer.pytorch.keeper import Keeper
from trainer.pytorch.strategy import Ranks


@dataclass(frozen=True, kw_only=True)
class _Pending:
    place: Place
    sums: Callable[[], Tensor]


class Guard:
    """The ranks' votes on each step (trainer.common.vote), looked at one step later.

    `on_loss` gets each settled step's place and its mean loss over all ranks. `hint` is told to
    those whose training diverges.
    """

    def __init__(
        self,
        ranks: Ranks,
        device: torch.device,
        keeper: Keeper,
        *,
        on_loss: Callable[[Place, float], None],
        hint: str,
    ) -> None:
        self._ranks = ranks
        self._device = device
        self._keeper = keeper
        self._on_loss = on_loss
        self._hint = hint
        self._pending: _Pending | None = None

    def step(self, position: Position, loss_sum: Tensor, num_samples: int, *, place: Place) -> None:
        """Vote on the step just taken, settle the one before, and save if `position` is due.

        `loss_sum` is over this rank's `num_samples`, a scalar on the device. Raises Diverged or
        TrainingError, and Preempted once a checkpoint of `position` is on disk; on all ranks alike.
        """
        try:
            self._vote(place, loss_sum, num_samples)
            if self._keeper.is_due(position):
                self.settle()
                self._keeper.save(position)
        except Preempted:
            self._leave(position)

    def settle(self) -> None:
        """Settle the last step; before anything is saved or evaluated."""
        before, self._pending = self._pending, None
        if before is not None:
            self._judge(before)

    def _leave(self, position: Position) -> None:
        with contextlib.suppress(Preempted):  # the last step may have diverged
            self.settle()
        self._keeper.save(position)
        self._keeper.close()
        who = self._ranks.notice.reason or "another rank was asked to leave"
        kept = (
            f"checkpoint of step {position.step} is kept" if self._keeper.is_on else "nothing kept"
        )
        message = f"{who}; {kept}"
        raise Preempted(message)

    def _vote(self, place: Place, loss_sum: Tensor, num_samples: int) -> None:
        loss_sum = loss_sum.detach().to(torch.float64)
        is_bad = (~torch.isfinite(loss_sum)).to(torch.float64)
        known = torch.tensor(
            [
                num_samples,
                float(self._ranks.notice.reason is not None),
                float(self._keeper.has_failed),
            ],
            dtype=torch.float64,
        ).to(self._device, non_blocking=True)
        votes = torch.stack(
            [
                torch.nan_to_num(loss_sum, nan=0.0, posinf=0.0, neginf=0.0),
                known[0],
                is_bad,
                is_bad * (self._ranks.world.rank + 1),
                known[1],
                known[2],
            ]
        )
        before = self._pending
        self._pending = _Pending(place=place, sums=self._ranks.strategy.start_sum(votes))
        if before is not None:
            self._judge(before)

    def _judge(self, pending: _Pending) -> None:
        sums = pending.sums().tolist()
        loss = judge(sums, pending.place, rank=self._ranks.world.rank, hint=self._hint)
        self._on_loss(pending.place, loss)
