"""A network, loss and figures of the user's own: what own.main's training makes of them, in one process."""

from __future__ import annotations

import json
from typing import Any

import pytest

CHECKS = "tests.integration.programs.own_checks"


@pytest.fixture(scope="module")
def found(zygote, tmp_path_factory) -> dict[str, Any]:
    """What own_checks.py found."""
    return json.loads(zygote.run(CHECKS, folder=tmp_path_factory.mktemp("own")))


def test_a_network_with_convolutions_in_three_dimensions_trains(found):
    """PyTorch cannot lay their weights channels last, as those in two dimensions."""
    assert found["convolved"] == {
        "steps": 6,
        "2d is channels last": True,
        "3d is contiguous": True,
    }


def test_a_figure_of_a_wrong_name_is_told_before_the_first_step(found):
    told = found["figures"]
    message = "main='closs' names no figure: figures() gives close (hint: main='close')"
    assert told["main"] == [0, message]
    message = "main='close' names no figure: figures() gives none (hint: main='loss')"
    assert told["no main"] == [0, message]
    message = "figures() gives a figure `loss`, which is the name of loss()'s own mean"
    assert told["named loss"] == [0, f"{message} (hint: another name for that figure)"]
    assert told["main is the loss"] == [6, {"loss": "min"}]


def test_a_figure_without_a_value_for_each_sample_is_told_before_the_first_step(found):
    """Of a batch's mean the mean over all samples was wrong, and nobody said so."""
    hint = "(hint: a tensor (N) of a value for each sample, not their mean)"
    for name, given in {"a mean": "shape ()", "a number": "float"}.items():
        message = f"figures() gives `close` as {given} for 2 samples {hint}"
        assert found["figures"][name] == [0, message]


def test_a_figure_that_is_not_finite_is_named_and_only_the_loss_diverges(found):
    assert found["figures"]["undefined"] == [
        6,
        "figures() gives a figure `iou` whose mean over the validation set is nan "
        "(hint: a number for each sample, also where 0/0 would be none: torch.nan_to_num)",
    ]
    assert found["figures"]["diverged"] == [
        6,
        "training has diverged: the loss of the validation set is not finite "
        "(hint: a smaller --lr than 0.001)",
    ]


def test_batches_that_add_up_take_the_steps_of_a_large_one_and_resume_it(found):
    whole, halves, resumed, other = found["accumulated"].values()
    assert halves["losses"] == pytest.approx(whole["losses"], rel=1e-5)
    assert [halves["summary"][key] for key in ("batch_size", "steps")] == [16, 3]
    assert halves["summary"]["val_loss"] == pytest.approx(whole["summary"]["val_loss"], rel=1e-5)
    assert [resumed["summary"][key] for key in ("resumed_from_step", "steps")] == [3, 6]
    assert "batch_size 16 there, 8 now" in other["said"]


def test_a_moving_average_is_what_is_evaluated_and_kept(found):
    averaged = found["averaged"]
    assert averaged["num_steps"] == 6
    assert averaged["furthest"] < 1e-6
    assert averaged["evaluated"] == pytest.approx(averaged["by hand"]["average"], rel=1e-5)
    assert averaged["evaluated"] != pytest.approx(averaged["by hand"]["last"], rel=1e-2)
