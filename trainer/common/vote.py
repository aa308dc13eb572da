"""What the ranks tell each other after every step, and what they conclude from it together.

Each rank gives six numbers, the ranks add them up, and one step later all of them look at the same
sums: so they stop at the same step, whichever of them saw the reason. Looking late keeps a device's
queue full; nothing is saved before the votes on it are in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainer.common.errors import TrainingError
from trainer.common.preemption import Preempted
from trainer.common.saver import SaveFailure

# What each rank gives, in this order; `failure` is rank 0's SaveFailure. A loss that is no finite number is given as 0 and as bad.
# `bad_rank` is rank + 1 where the loss is bad, else 0: the sum names the rank when it is one.
VOTE = ("loss_sum", "num_samples", "is_bad", "bad_rank", "is_leaving", "failure")
MOST_SHOWN = 16


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where in training a step was: counted from 1; `samples` are this rank's part of the batch."""

    step: int
    epoch: int
    batch: int
    samples: Sequence[int] = ()


class Diverged(TrainingError):
    """The loss of a step is no finite number; all ranks raise it at the same step."""


def judge(sums: Sequence[float], place: Place, *, rank: int, hint: str) -> float:
    """Give the step's mean loss over all ranks' samples.

    Raises Diverged where a rank's loss was no finite number, TrainingError where a rank has to
    stop (a checkpoint that could not be written), and Preempted where one was asked to leave.
    """
    loss_sum, num_samples, num_bad, bad_ranks, num_leaving, failure = sums
    if num_bad:
        raise Diverged(_diverged(place, round(num_bad), round(bad_ranks) - 1, rank), hint=hint)
    require_saved(round(failure), place.step, hint=hint)
    if num_leaving:
        raise Preempted
    return loss_sum / num_samples


def require_saved(failure: int, step: int, *, hint: str) -> None:
    """Raises what a checkpoint that could not be written by this step means, on any rank."""
    if failure == SaveFailure.STATE:
        message = f"training has diverged: weights are no finite numbers by step {step}"
        raise Diverged(message, hint=hint)
    if failure == SaveFailure.DISK:
        message = f"rank 0 could not write a checkpoint by step {step}"
        raise TrainingError(message, hint="its log says why; --on-checkpoint-error continue")


def _diverged(place: Place, num_bad: int, bad_rank: int, rank: int) -> str:
    who = f"rank {bad_rank}" if num_bad == 1 else f"{num_bad} ranks"
    message = (
        f"training has diverged: the loss of {who} is no finite number at step {place.step} "
        f"(epoch {place.epoch}, batch {place.batch})"
    )
    if place.samples and (num_bad > 1 or rank == bad_rank):
        shown = ", ".join(str(sample) for sample in place.samples[:MOST_SHOWN])
        more = len(place.samples) - MOST_SHOWN
        message += f"; samples of rank {rank}: {shown}" + (f" and {more} more" if more > 0 else "")
    return message
