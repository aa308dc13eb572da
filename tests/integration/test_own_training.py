"""A network, loss and figures of the user's own: what own.main's training makes of them, in one process."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.fakes.picture_runs import RUN_TIMEOUT_S
from tests.fakes.torch_ranks import start_gang

CHECKS = "tests.integration.programs.own_checks"
RANKS = "tests.integration.programs.own_ranks"


@pytest.fixture(scope="module")
def found(zygote, tmp_path_factory) -> dict[str, Any]:
    """What own_checks.py found."""
    return json.loads(zygote.run(CHECKS, folder=tmp_path_factory.mktemp("own")))


def test_a_network_with_convolutions_in_three_dimensions_trains(found):
    """PyTorch cannot lay their weights channels last, as those in two dimensions."""
    assert found["convolved"] == {
        "steps": 6,
        "grey pictures become channels last": True,
        "2d is channels last": True,
        "3d is contiguous": True,
    }


def test_a_figure_of_a_wrong_name_is_told_before_the_first_step(found):
    told = found["figures"]
    message = "main='closs' names no figure: figures() gives close (hint: main='close')"
    assert told["main"] == [0, message]
    message = "main='close' names no figure: figures() gives none (hint: main='loss')"
    assert told["no main"] == [0, message]
    message = "figures() gives a figure `loss`, a name that loss()'s own mean has"
    assert told["named loss"] == [0, f"{message} (hint: another name for that figure)"]
    assert told["main is the loss"] == [6, {"loss": "min"}]
    message = "figures() gives a figure `step`, a name that a metric's place has"
    assert told["named step"] == [0, f"{message} (hint: another name for that figure)"]
    message = 'figures() gives a figure named 7, which is no text (hint: "class_7", say)'
    assert told["named 7"] == [0, message]


def test_a_loss_that_no_step_can_take_is_told_before_the_first(found):
    assert found["figures"]["a loss of one row"] == [
        0,
        "loss() gives a tensor of shape (1,), not one number "
        "(hint: the mean over the batch: .mean())",
    ]
    for name, given in {"a loss and more": "tuple", "no loss": "NoneType"}.items():
        message = f"loss() gives a {given}, not one number (hint: the mean over the batch: .mean())"
        assert found["figures"][name] == [0, message]
    assert found["figures"]["a loss that learns"] == [
        0,
        "the loss Sequential has parameters, and only the network's are trained "
        "(hint: keep them in the network that build() makes)",
    ]


def test_a_moving_average_takes_indices_and_masks_as_they_are(found):
    assert found["odd_buffers"] == {"index": True, "is_new": False, "steps": 6}


def test_a_task_whose_epochs_have_another_number_of_batches_than_it_says_is_refused(found):
    """Evaluations and checkpoints lay within epochs, or no epoch ended."""
    said = "batches of an epoch than the task's num_batches, "
    hint = "(hint: count a smaller last batch in both, or in neither)"
    assert found["tasks"] == {
        "none": "an epoch has no batch (hint: a smaller --batch-size, or more samples)",
        "more": f"batches() gives more {said}5 {hint}",
        "fewer": f"batches() gives fewer {said}7 {hint}",
        "right": 6,
        "rates": pytest.approx([0.025, 0.25]),
    }


def test_a_task_without_batches_in_an_epoch_is_refused_and_evaluates_in_eval_mode(found):
    """It went through epochs without a step for ever; dropout drew in evaluations."""
    assert found["loops"] == {
        "used up": "batches() gives fewer batches of an epoch than the task's num_batches, 6 "
        "(hint: count a smaller last batch in both, or in neither)",
        "steps": 12,
        "not finite": "evaluate() gives a figure `close` that is nan "
        "(hint: a smaller --lr than 0.001)",
        "modes": [False] * 3,
        # Of a network, a data set and a loss.
        "least": {"loss": "min"},
    }


@pytest.mark.parametrize("strategy", ["ddp", "horovod"])
def test_buffers_that_ranks_differ_in_are_rank_0s_in_the_model(zygote, tmp_path, strategy):
    """Counts, and what moves in an evaluation, too; a mask of the lowest number stays one."""
    gang = start_gang(zygote, [RANKS, "buffers"], strategy=strategy, size=2, folder=tmp_path)
    assert gang.wait(RUN_TIMEOUT_S) == [0, 0], gang.texts()
    gang.end()
    told = json.loads((tmp_path / "summary.json").read_text())
    assert len(told["weights_sha256"]) == 2
    assert len(set(told["weights_sha256"])) == 1
    assert "mask is whole" in (tmp_path / "rank-0.log").read_text()


def test_a_parameter_that_no_loss_depends_on_is_named_under_ddp(zygote, tmp_path):
    """Horovod averages it, as the hint says."""
    folders = {name: tmp_path / name for name in ("ddp", "horovod")}
    for name, codes in {"ddp": [1, 1], "horovod": [0, 0]}.items():
        gang = start_gang(zygote, [RANKS, "idle"], strategy=name, size=2, folder=folders[name])
        assert gang.wait(RUN_TIMEOUT_S) == codes, gang.texts()
        gang.end()
    for rank in range(2):
        said = (folders["ddp"] / f"rank-{rank}.log").read_text()
        assert (
            "error: the loss does not depend on `pooler.weight` and 1 more, and DDP waits for the "
            "gradients of all (hint: requires_grad_(False) where it never learns, or --strategy horovod)"
        ) in said
        assert "Traceback" not in said


def test_a_figure_without_a_value_for_each_sample_is_told_before_the_first_step(found):
    """Of a batch's mean the mean over all samples was wrong, and nobody said so."""
    hint = "(hint: a tensor (N) of a value for each sample, not their mean)"
    for name, given in {"a mean": "shape ()", "a number": "float"}.items():
        message = f"figures() gives `close` as {given} for 2 samples {hint}"
        assert found["figures"][name] == [0, message]
    # Those of two classes passed for those of the two samples that are asked for.
    message = f"figures() gives `close` as shape (2,) for 8 samples {hint}"
    assert found["figures"]["of two classes"] == [6, message]
    hint = '(hint: {"iou": values}, a tensor (N) of a value for each sample)'
    message = f"figures() gives a Tensor, not figures by their names {hint}"
    assert found["figures"]["no names"] == [0, message]


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
