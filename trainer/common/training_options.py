"""Defines the options that every training program has."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from trainer.common.options import MAY_CHANGE
from trainer.common.saver import OnSaveError

DeviceName = Literal["auto", "cpu", "cuda"]
PrecisionName = Literal["fp32", "bf16", "fp16"]
LossName = Literal["ce", "bce"]


class Bounds:
    """Require of options that they lie within bounds; a program's own options extend it.

    Infinity and what is not a number lie within none.
    """

    def require_positive(self, *names: str) -> None:
        """Raises ValueError for the first of these options that is given and not above 0."""
        for name in names:
            value = self._finite(name)
            if value is not None and value <= 0:
                message = f"--{name.replace('_', '-')} must be above 0, not {value}"
                raise ValueError(message)

    def require_share(self, *names: str) -> None:
        """Raises ValueError for the first of these options that is no share: below 0, or 1 or more."""
        for name in names:
            value = self._finite(name)
            if value is not None and not 0 <= value < 1:
                message = f"--{name.replace('_', '-')} must be 0 or more and below 1, not {value}"
                raise ValueError(message)

    def require_at_least(self, least: float, *names: str) -> None:
        """Raises ValueError for the first of these options that is given and below."""
        for name in names:
            value = self._finite(name)
            if value is not None and value < least:
                message = f"--{name.replace('_', '-')} must be {least} or more, not {value}"
                raise ValueError(message)

    def _finite(self, name: str) -> float | None:
        value = getattr(self, name)
        if isinstance(value, float) and not math.isfinite(value):
            message = f"--{name.replace('_', '-')} must be finite, not {value}"
            raise ValueError(message)
        return value


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(Bounds):
    """Seed, metrics and checkpoints; a program's own options extend it."""

    seed: Annotated[int, "random seed of weights, order, augmentation and dropout"] = 1
    output_dir: Annotated[
        Path | None, "folder of what the program writes (default: ./outputs)", MAY_CHANGE
    ] = None
    log_every: Annotated[int, "steps between two lines of training metrics", MAY_CHANGE] = 10
    checkpoint_dir: Annotated[
        Path | None,
        "folder of the checkpoints, resumed from if it holds one; else the run's own",
        MAY_CHANGE,
    ] = None
    checkpoint_every: Annotated[
        int | None, "steps between two checkpoints; else one an epoch", MAY_CHANGE
    ] = None
    keep_last: Annotated[int, "newest checkpoints that are kept", MAY_CHANGE] = 3
    keep_every: Annotated[int | None, "keep those of every N steps for good, too", MAY_CHANGE] = (
        None
    )
    on_checkpoint_error: Annotated[
        OnSaveError, "action when a checkpoint cannot be written", MAY_CHANGE
    ] = "continue"
    scheduled_events: Annotated[
        str | None,
        "URL of Azure's Scheduled Events to poll, or `azure` for its usual one",
        MAY_CHANGE,
    ] = None

    def __post_init__(self) -> None:
        self.require_positive("log_every", "keep_last", "checkpoint_every", "keep_every")
        url = self.scheduled_events
        if url is not None and url != "azure" and not url.startswith(("http://", "https://")):
            message = f"--scheduled-events is `azure` or a URL of http, not {url}"
            raise ValueError(message)
