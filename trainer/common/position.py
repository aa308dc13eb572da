"""Holds a training's position, and checks that a checkpoint is of the same training."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from trainer.common.errors import TrainingError


@dataclass(frozen=True, kw_only=True)
class Position:
    """Finished work: steps in all, whole epochs, and batches of the epoch that is begun."""

    step: int = 0
    epoch: int = 0
    batch: int = 0

    def after_batch(self, num_batches: int) -> Position:
        """Give the position one step on, in epochs of so many batches."""
        if self.batch + 1 == num_batches:
            return Position(step=self.step + 1, epoch=self.epoch + 1)
        return Position(step=self.step + 1, epoch=self.epoch, batch=self.batch + 1)

    def is_due(self, every: int | None) -> bool:
        """Tell whether to save here: every so many steps, else at the end of each epoch."""
        return self.step % every == 0 if every else self.batch == 0


@dataclass(frozen=True, kw_only=True)
class TakenStep:
    """One step that was taken, counted from 1; `samples` are this rank's part of its batch."""

    step: int
    epoch: int
    batch: int
    samples: Sequence[int] = ()


def require_same(
    about: Mapping[str, Any],
    recipe: Mapping[str, Any],
    name: str,
    *,
    defaults: Mapping[str, Any],
) -> None:
    """Raises TrainingError where going on from the checkpoint would be another training.

    `recipe` is what the steps depend on: program, data, seed, the batch over all ranks. What an older
    version of the program did not know, it did as the option's default has it.
    """
    told = about.get("recipe")
    told = cast("dict[str, Any]", told) if isinstance(told, dict) else {}
    # As it was kept: JSON knows no tuples.
    recipe = json.loads(json.dumps(dict(recipe)))
    kept = {**{key: defaults[key] for key in recipe.keys() & defaults.keys()}, **told}
    others = [key for key in recipe if kept.get(key) != recipe[key]]
    if others:
        changes = ", ".join(f"{key} {kept.get(key)} there, {recipe[key]} now" for key in others)
        message = f"checkpoint {name} is of another training: {changes}"
        raise TrainingError(message, hint="use the same values, or choose another --checkpoint-dir")


def require_within(about: Mapping[str, Any], num_epochs: int, name: str) -> None:
    """Raises TrainingError where more epochs are done or begun than there are to be."""
    try:
        position = Position(**about["position"])
        num_begun = position.epoch + (position.batch > 0)
    except (KeyError, TypeError) as error:
        message = f"checkpoint {name} is whole, but says of no position: {error!r}"
        raise TrainingError(message, hint="another --checkpoint-dir") from None
    if num_begun > num_epochs:
        message = f"checkpoint {name} is in epoch {num_begun} already, and --epochs is {num_epochs}"
        raise TrainingError(
            message, hint=f"--epochs {num_begun} or more, or choose another --checkpoint-dir"
        )
