"""Decides from the sums of the ranks' reports on a step whether training goes on.

Each rank reports seven numbers, an allreduce adds them up, and one step later all ranks read the same
sums: so they stop at the same step, whichever of them saw the reason. Reading late keeps a device's
queue full; nothing is saved before the sums of its steps are read.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainer.common.errors import TrainingError
from trainer.common.position import TakenStep
from trainer.common.saver import SaveFailure

# What each rank reports, in this order; `save_failure` is rank 0's SaveFailure. A loss that is no finite
# number is reported as 0 and as bad.
# A framework may add the number of samples that were told right.
# `bad_rank` is rank + 1 where the loss is bad, else 0: the sum names the rank when it is one.
REPORT = (
    "loss_sum",
    "num_samples",
    "is_bad",
    "bad_rank",
    "is_leaving",
    "is_failing",
    "save_failure",
)
MOST_SHOWN = 16


class Diverged(TrainingError):
    """Raised on all ranks at the same step, whose loss is not finite."""


def judge(sums: Sequence[float], taken: TakenStep, *, rank: int, hint: str) -> float:
    """Give the step's mean loss over all ranks' samples.

    Raises Diverged where a rank's loss was not finite, and TrainingError where a checkpoint could
    not be written.
    """
    loss_sum, num_samples, num_bad, bad_ranks, _, _, save_failure, *_ = sums
    if num_bad:
        raise Diverged(_diverged(taken, round(num_bad), round(bad_ranks) - 1, rank), hint=hint)
    require_saved(round(save_failure), taken.step, hint=hint)
    return loss_sum / num_samples


def are_leaving(sums: Sequence[float]) -> bool:
    """Tell whether a rank was asked to leave, or cannot go on, so that all leave."""
    return sums[REPORT.index("is_leaving")] > 0 or are_failing(sums)


def are_failing(sums: Sequence[float]) -> bool:
    """Tell whether a rank cannot go on."""
    return sums[REPORT.index("is_failing")] > 0


def accuracy_of(sums: Sequence[float]) -> float | None:
    """Give the share of the step's samples that were told right; None where nobody counted."""
    return sums[len(REPORT)] / sums[1] if len(sums) > len(REPORT) else None


def require_saved(failure: int, step: int, *, hint: str) -> None:
    """Raise TrainingError, or Diverged, for rank 0's SaveFailure; nothing where it is NONE."""
    if failure == SaveFailure.STATE:
        message = f"training has diverged: weights are not finite by step {step}"
        raise Diverged(message, hint=hint)
    if failure == SaveFailure.DISK:
        message = f"rank 0 could not write a checkpoint by step {step}"
        raise TrainingError(message, hint="its log says why; --on-checkpoint-error continue")


def _diverged(taken: TakenStep, num_bad: int, bad_rank: int, rank: int) -> str:
    who = f"rank {bad_rank}" if num_bad == 1 else f"{num_bad} ranks"
    message = (
        f"training has diverged: the loss of {who} is not finite at step {taken.step} "
        f"(epoch {taken.epoch}, batch {taken.batch})"
    )
    if taken.samples and (num_bad > 1 or rank == bad_rank):
        shown = ", ".join(str(sample) for sample in taken.samples[:MOST_SHOWN])
        more = len(taken.samples) - MOST_SHOWN
        message += f"; samples of rank {rank}: {shown}" + (f" and {more} more" if more > 0 else "")
    return message
