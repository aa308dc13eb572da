"""Adds up the reports of PyTorch ranks on each step (trainer.common.guard)."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping

import torch
from torch import Tensor

from trainer.common.errors import TrainingError
from trainer.common.guard import OnStep, ReadSums, StepGuard
from trainer.common.position import Position, TakenStep
from trainer.pytorch.keeper import Keeper
from trainer.pytorch.strategy import Ranks
from trainer.pytorch.transfer import send

EARLY = "HOROVOD_ENABLE_ASYNC_COMPLETION"


def require_whole_sums(strategy: str, environ: Mapping[str, str]) -> None:
    """Raises TrainingError where Horovod would call sums complete that a GPU still computes.

    The reports are read on a stream of their own, which nothing would make wait for them.
    """
    if strategy == "horovod" and environ.get(EARLY, "0") not in ("", "0"):
        message = f"{EARLY} is set: ranks would read each other's reports before they are there"
        raise TrainingError(message, hint=f"unset {EARLY}, or --strategy ddp")


class Guard(StepGuard):
    """Agrees by one small allreduce that nobody waits for before the next step is queued."""

    def __init__(
        self,
        ranks: Ranks,
        device: torch.device,
        keeper: Keeper,
        *,
        on_loss: OnStep,
        hint: str,
    ) -> None:
        super().__init__(ranks.world, ranks.notice, keeper, on_loss=on_loss, hint=hint)
        require_whole_sums(ranks.strategy.name, os.environ)
        self._strategy = ranks.strategy
        self._device = device
        self._reading = torch.cuda.Stream(device) if device.type == "cuda" else None

    def step(
        self,
        position: Position,
        loss_sum: Tensor,
        num_samples: int,
        *,
        taken: TakenStep,
        num_right: Tensor | None = None,
    ) -> None:
        """Agree on the step just taken, settle the previous one, and save if `position` is due.

        `loss_sum` is over this rank's `num_samples`, a scalar on the device, and so is `num_right`,
        of those that were told right. Raises what `settle` raises.
        """
        loss_sum, right = loss_sum.detach(), [] if num_right is None else [num_right]
        self._after_step(
            position, taken, lambda: self._begin(self._report(loss_sum, num_samples, *right))
        )

    def check(self, position: Position) -> None:
        """Agree between steps on whether to leave: in an evaluation, equally often on every rank.

        Raises what `settle` raises.
        """
        self._between_steps(position, lambda: self._begin(self._report(torch.zeros(()), 1)))

    def _report(self, loss_sum: Tensor, num_samples: int, *num_right: Tensor) -> Tensor:
        """Give this rank's report, in the order of trainer.common.agreement.REPORT."""
        flags = self._flags()
        number = self._world.rank + 1
        if loss_sum.device.type == "cpu":  # ten small tensors would cost more than the allreduce
            loss = loss_sum.item()
            is_bad = not math.isfinite(loss)
            own = [0.0 if is_bad else loss, num_samples, is_bad, is_bad * number]
            right = [each.item() for each in num_right]
            return send(torch.tensor([*own, *flags, *right], dtype=torch.float64), self._device)
        loss_sum = loss_sum.to(torch.float64)
        bad = (~torch.isfinite(loss_sum)).to(torch.float64)
        known = send(torch.tensor([num_samples, *flags], dtype=torch.float64), self._device)
        finite = torch.nan_to_num(loss_sum, nan=0.0, posinf=0.0, neginf=0.0)
        right = [each.to(torch.float64) for each in num_right]
        return torch.stack([finite, known[0], bad, bad * number, *known[1:], *right])

    def _begin(self, report: Tensor) -> ReadSums:
        sums = self._strategy.start_sum(report)
        reading = self._reading
        if reading is None:
            return lambda: sums().tolist()
        begun = torch.cuda.current_stream().record_event()

        def read() -> list[float]:
            # Not behind the kernels of the steps that were queued since: the queue would run empty.
            reading.wait_event(begun)
            with torch.cuda.stream(reading):
                return sums().tolist()

        return read
