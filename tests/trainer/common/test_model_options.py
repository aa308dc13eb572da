"""Options for saved models exclude each other, and say what they need."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainer.common.errors import TrainingError
from trainer.common.model_options import ModelOptions


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"predict": Path("a.png")},
            "--predict needs --model FILE, which a training wrote into outputs/model",
        ),
        (
            {"predict": Path("a.png"), "model": Path("m"), "evaluate_only": True},
            "--predict and --evaluate-only are two things: give one of them",
        ),
        ({"profile": -1}, "--profile must be 0 or more, not -1"),
    ],
)
def test_a_contradiction_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        ModelOptions(**given)


def test_an_evaluation_needs_weights_that_were_learnt_all_of_them():
    model, weights, unknown = Path("m"), Path("w"), "`w` is for 7 classes, not 3"
    ModelOptions(model=model).require_learnt(weights, unknown=unknown)
    ModelOptions().require_learnt(weights)
    with pytest.raises(TrainingError, match="found no checkpoint, and no --model is given"):
        ModelOptions().require_learnt(None, unknown=unknown)
    with pytest.raises(TrainingError, match=f"random weights: {unknown}"):
        ModelOptions().require_learnt(weights, unknown=unknown)


def test_one_process_predicts():
    options = ModelOptions(predict=Path("a.png"), model=Path("m"))
    options.require_alone(1)
    ModelOptions().require_alone(2)
    with pytest.raises(TrainingError, match="--predict is for one process, and these are 2 ranks"):
        options.require_alone(2)
