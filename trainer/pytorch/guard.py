"""Sees to it that PyTorch ranks save and stop at the same step: divergence, preemption, full disks."""

from __future__ import annotations

import math
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
    """A vote under way; `begun` is when, on a GPU."""

    place: Place
    is_step: bool
    sums: Callable[[], Tensor]
    begun: torch.cuda.Event | None


class Guard:
    """The ranks' votes on each step (trainer.common.vote), looked at one step later.

    Every method is a collective. `on_loss` gets each settled step's place and its mean loss over
    all ranks. `hint` is told to those whose training diverges.
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
        self._position = Position()
        self._pending: _Pending | None = None
        self._reading = torch.cuda.Stream(device) if device.type == "cuda" else None

    def step(self, position: Position, loss_sum: Tensor, num_samples: int, *, place: Place) -> None:
        """Vote on the step just taken, settle the one before, and save if `position` is due.

        `loss_sum` is over this rank's `num_samples`, a scalar on the device. Raises Diverged or
        TrainingError, and Preempted once a checkpoint of `position` is on disk; on all ranks alike.
        """
        self._position = position
        # The votes before come first: no rank may begin what others have left for good.
        are_leaving = self._are_leaving()
        self._begin(self._votes(loss_sum.detach(), num_samples), place, is_step=True)
        if are_leaving:
            self._leave()
        if self._keeper.is_due(position):
            self.settle()
            self._keeper.save(position)

    def check(self, position: Position) -> None:
        """Vote between steps on whether to leave: in an evaluation, equally often on every rank.

        Raises what `step` raises, Preempted once a checkpoint of `position` is on disk.
        """
        self._position = position
        self.settle()
        place = Place(step=position.step, epoch=position.epoch, batch=position.batch)
        self._begin(self._votes(torch.zeros(()), 1), place, is_step=False)

    def settle(self) -> None:
        """Settle the last step; before anything is saved or evaluated. Raises what `step` raises."""
        if self._are_leaving():
            self._leave()

    def _leave(self) -> None:
        """Write a last checkpoint, and let no rank go before it is on disk."""
        self._are_leaving()  # the last step may have diverged
        step = self._position.step
        is_kept = self._keeper.save_last(self._position)
        who = self._ranks.notice.reason or "another rank was asked to leave"
        kept = f"checkpoint of step {step} is kept" if is_kept else f"step {step} is not kept"
        message = f"{who}; {kept}"
        raise Preempted(message)

    def _votes(self, loss_sum: Tensor, num_samples: int) -> Tensor:
        """This rank's numbers, as trainer.common.vote.VOTE has them."""
        is_leaving = float(self._ranks.notice.reason is not None)
        has_failed = float(self._keeper.has_failed)
        number = self._ranks.world.rank + 1
        if loss_sum.device.type == "cpu":  # ten small tensors would cost more than the allreduce
            loss = loss_sum.item()
            is_bad = not math.isfinite(loss)
            own = [0.0 if is_bad else loss, num_samples, is_bad, is_bad * number]
            votes = torch.tensor([*own, is_leaving, has_failed], dtype=torch.float64)
            return votes.to(self._device)
        loss_sum = loss_sum.to(torch.float64)
        bad = (~torch.isfinite(loss_sum)).to(torch.float64)
        known = torch.tensor([num_samples, is_leaving, has_failed], dtype=torch.float64)
        known = known.to(self._device, non_blocking=True)
        finite = torch.nan_to_num(loss_sum, nan=0.0, posinf=0.0, neginf=0.0)
        return torch.stack([finite, known[0], bad, bad * number, known[1], known[2]])

    def _begin(self, votes: Tensor, place: Place, *, is_step: bool) -> None:
        sums = self._ranks.strategy.start_sum(votes)
        begun = torch.cuda.current_stream().record_event() if self._reading else None
        self._pending = _Pending(place=place, is_step=is_step, sums=sums, begun=begun)

    def _are_leaving(self) -> bool:
        """Look at the vote under way, if there is one; gives whether the ranks are to leave."""
        pending, self._pending = self._pending, None
        if pending is None:
            return False
        sums = self._read(pending)
        try:
            loss = judge(sums, pending.place, rank=self._ranks.world.rank, hint=self._hint)
        except Preempted:
            return True
        if pending.is_step:
            self._on_loss(pending.place, loss)
        return False

    def _read(self, pending: _Pending) -> list[float]:
        if self._reading is None or pending.begun is None:
            return pending.sums().tolist()
        # Not behind the kernels of the steps that were queued since: the queue would run empty.
        self._reading.wait_event(pending.begun)
        with torch.cuda.stream(self._reading):
            return pending.sums().tolist()
