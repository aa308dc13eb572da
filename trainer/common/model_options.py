"""Defines the options for saved models and profiles, of programs that train a network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from trainer.common.errors import TrainingError
from trainer.common.options import MAY_CHANGE
from trainer.common.training_options import TrainingOptions


@dataclass(frozen=True, kw_only=True)
class ModelOptions(TrainingOptions):
    """Begin from a saved model, evaluate or predict by it, profile; a program's own extend it."""

    model: Annotated[
        Path | None, "begin from the model that this program wrote into this file", MAY_CHANGE
    ] = None
    evaluate_only: Annotated[
        bool, "evaluate the newest checkpoint, else --model; do not train", MAY_CHANGE
    ] = False
    predict: Annotated[
        Path | None,
        "predict this file, or the files of this folder, by --model; do not train",
        MAY_CHANGE,
    ] = None
    max_corrupt: Annotated[
        int,
        "corrupt files that --predict, or a training that skips them, may meet on a rank; 0 skips none",
        MAY_CHANGE,
    ] = 10
    profile: Annotated[
        int, "profile so many steps after the warm-up, into the output `profile`", MAY_CHANGE
    ] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_at_least(0, "profile", "max_corrupt")
        if self.predict:
            self.saved  # noqa: B018 - there has to be one
        if self.predict and self.evaluate_only:
            message = "--predict and --evaluate-only are two things: give one of them"
            raise ValueError(message)

    @property
    def saved(self) -> Path:
        """Give the model file that --predict loads; raises ValueError where none is given."""
        if self.model is None:
            message = "--predict needs --model FILE, which a training wrote into outputs/model"
            raise ValueError(message)
        return self.model

    def require_learnt(self, weights: Path | None = None, *, unknown: str = "") -> None:
        """Raise TrainingError where an evaluation without a checkpoint would be of random weights.

        `weights` are those that the program begins from beside --model, and `unknown` says what of the
        network they do not know.
        """
        if self.model is not None:
            return
        if weights is None:
            message = "--evaluate-only found no checkpoint, and no --model is given"
            raise TrainingError(message, hint="--model FILE, or `launch rerun RUN --resume`")
        if unknown:
            message = f"--evaluate-only would evaluate random weights: {unknown}"
            hint = "--model FILE of a training on these classes, or `launch rerun RUN --resume`"
            raise TrainingError(message, hint=hint)

    def require_alone(self, world_size: int) -> None:
        """Raise TrainingError where several ranks are to predict."""
        if self.predict and world_size > 1:
            message = f"--predict is for one process, and these are {world_size} ranks"
            raise TrainingError(message, hint="start it on one")
