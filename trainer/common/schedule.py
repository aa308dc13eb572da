"""Computes learning rates by step: a linear warm-up, then steps down or half a cosine.

Source: Goyal et al. 2017, arXiv 1706.02677 (linear scaling, gradual warm-up); Loshchilov and
Hutter 2017, arXiv 1608.03983 (cosine).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

ScheduleName = Literal["step", "cosine"]
# 30, 60 and 80 of 90 epochs, whatever the number of epochs.
STEPS_AT = (30 / 90, 60 / 90, 80 / 90)


def parse_steps(text: str, *, option: str) -> list[int]:
    """Read an option's steps after which a rate falls; raises ValueError for others than rising ones."""
    steps = [int(each) if each.strip().isdecimal() else 0 for each in text.split(",")]
    if min(steps) < 1 or sorted(set(steps)) != steps:
        message = f"{option} are rising numbers above 0, as 60000,80000, not {text}"
        raise ValueError(message)
    return steps


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The learning rate of every step; `peak` is reached after `num_warmup_steps` of `num_steps`.

    `step` takes a tenth after each of `steps_at`, which are parts of the whole training.
    """

    name: ScheduleName
    peak: float
    num_steps: int
    num_warmup_steps: int = 0
    steps_at: tuple[float, ...] = STEPS_AT

    def rate(self, step: int) -> float:
        """Give the rate of the step, counted from 0."""
        if step < self.num_warmup_steps:
            return self.peak * (step + 1) / self.num_warmup_steps
        if self.name == "step":
            passed = step / self.num_steps
            return self.peak * 0.1 ** sum(passed >= at for at in self.steps_at)
        rest = max(1, self.num_steps - self.num_warmup_steps)
        return self.peak * 0.5 * (1 + math.cos(math.pi * (step - self.num_warmup_steps) / rest))
