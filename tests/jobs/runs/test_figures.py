"""Figures of a run: which is the main one, which way is better, how they are worded."""

from __future__ import annotations

import json
import math

import pytest

from jobs.contracts.spec import RunState
from jobs.runs.ending import fetch_command, main_figures, output_places
from jobs.runs.figures import Figure, choose_main, figures_of, goal_of, value_text
from jobs.runs.metrics import Curve, read_curves
from tests.jobs.runs.test_outcome import RUN, status


def curve(label: str, *values: float, goal=None) -> Curve:
    split, _, name = label.rpartition(" ")
    at = [float(number) for number in range(1, len(values) + 1)]
    return Curve(split=split, name=name, at=at, values=list(values) or [1.0], goal=goal)


@pytest.mark.parametrize(
    ("labels", "main"),
    [
        (["train loss", "test loss", "test accuracy", "train images_per_s"], "test accuracy"),
        (["val loss", "val top1", "val top5"], "val top1"),
        (["val box_ap", "val mask_ap", "train loss"], "val box_ap"),
        (["train accuracy", "val loss"], "val loss"),
        (["train accuracy", "train loss"], "train accuracy"),
        (["val a", "val b", "train loss"], "val b"),
        (["reward", "lr"], "reward"),
        (["train_loss", "val_loss", "epoch_time"], "val_loss"),
        (["top1_error", "error_rate", "loss"], "top1_error"),
        (["x", "lr"], "x"),
        (["eval_loss", "eval_runtime", "eval_samples_per_second"], "eval_loss"),
        (["x", "runtime", "score_time", "samples_per_second"], "x"),
        (["train_loss", "val score_time"], "train_loss"),
        (["lr"], "lr"),
    ],
)
def test_without_a_declaration_split_then_name_choose(labels, main):
    found = choose_main([curve(label) for label in labels])
    assert found is not None
    assert found.label == main


def test_the_last_value_is_the_last_that_is_a_number():
    assert curve("train loss", 2.0, 1.0, math.nan).last == (2.0, 1.0)


def test_what_the_program_declares_is_the_main_figure():
    curves = [curve("val accuracy", 0.5), curve("train cost", 3.0, 1.0, 2.0, goal="min")]
    assert choose_main(curves) is curves[1]
    assert choose_main([]) is None
    assert figures_of(curves) == [
        Figure(
            split="train",
            name="cost",
            goal="min",
            axis="epoch",
            last=2.0,
            last_at=3,
            best=1.0,
            best_at=2,
        ),
        Figure(
            split="val",
            name="accuracy",
            goal="max",
            axis="epoch",
            last=0.5,
            last_at=1,
            best=0.5,
            best_at=1,
        ),
    ]


@pytest.mark.parametrize(
    ("name", "goal"),
    [
        *(("accuracy", "max"), ("top5", "max"), ("mAP50", "max"), ("box_ap", "max")),
        *(("loss", "min"), ("val-RMSE", "min"), ("top1_error", "min"), ("error_rate", "min")),
        *(("lr", None), ("apples", None), ("images_per_s", None)),
        *(("score_time", None), ("loss_seconds", None), ("loss_epoch", "min"), ("runtime", None)),
    ],
)
def test_a_name_tells_which_way_is_better(name, goal):
    assert goal_of(curve(name)) == goal


@pytest.mark.parametrize(
    ("value", "name", "text"),
    [
        (0.98306, "accuracy", "98.31%"),
        (93.5, "accuracy", "93.5000"),
        (0.374, "mask_ap", "0.3740"),
        (0.07, "loss", "0.0700"),
        (1234.56, "loss", "1,234.6"),
        (1e-5, "lr", "1.000e-05"),
        (1e12, "x", "1.000e+12"),
        (0.0, "loss", "0.0000"),
        (-0.5, "reward", "-0.5000"),
    ],
)
def test_values_have_the_digits_that_matter(value, name, text):
    assert value_text(value, name) == text


def test_lines_of_any_script_are_read(tmp_path):
    lines = [
        '{"step": 1, "name": "ppl", "value": 9, "note": "x"}',
        '{"step": 2, "name": "ppl", "value": NaN}',
        '{"step": 3, "name": "ppl", "value": null}',
        '{"step": 4, "name": "ppl"}',
        '{"name": "ppl", "value": 1}',
        '{"step": 5, "name": "ppl", "value": 7.5, "epoch": 1}',
        '{"step": 5, "epoch": 1, "split": "val", "name": "bleu", "value": 1, "goal": "max"}',
        '{"step": 6, "name": "gone", "value": -Infinity}',
        '{"step": 6, "name": "ppl", "value": 1, "goal": "up"}',
        '{"step": 6, "name": "ppl", "va',
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    ppl, bleu = read_curves(tmp_path / "metrics.jsonl")
    assert (ppl.label, ppl.axis, ppl.at, ppl.goal) == ("ppl", "step", [1, 2, 3, 5, 6], None)
    assert [None if math.isnan(each) else each for each in ppl.values] == [9, None, None, 7.5, 1]
    assert ppl.last == (6, 1)
    assert bleu == Curve(split="val", name="bleu", at=[1], values=[1], goal="max")


def test_a_run_ends_with_its_figures_and_the_place_of_its_model():
    figures = figures_of([curve("val loss", 0.5, 0.25, 0.5), curve("train loss", 1.0)])
    assert main_figures(figures) == [("val loss", "0.5000 (best 0.2500 at epoch 2)")]
    assert main_figures([]) == []
    places = {"studio": "https://x", "outputs": "https://y/outputs/"}
    done = status("completed")
    assert output_places(done, places, ["model"]) == [("model", "https://y/outputs/model")]
    assert output_places(done, places, []) == [("outputs", "https://y/outputs/")]
    assert output_places(status("failed"), places, ["model"]) == []
    assert fetch_command(done, ["-s", "dev"]) == ("fetch with", f"launch fetch {RUN} -s dev")
    assert done.state is RunState.COMPLETED


def test_a_metric_of_a_program_is_declared_where_it_is_written(tmp_path):
    line = {"step": 1, "epoch": 1, "split": "val", "name": "wer", "value": 0.2, "goal": "min"}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(line))
    (figure,) = figures_of(read_curves(tmp_path / "metrics.jsonl"))
    assert (figure.label, figure.goal, figure.last) == ("val wer", "min", 0.2)


def test_a_line_with_a_split_of_null_or_a_goal_in_other_words_is_read(tmp_path):
    """As pandas and Optuna write them."""
    line = {
        "name": "rmse",
        "value": 1.0,
        "step": 1,
        "epoch": None,
        "split": None,
        "goal": "minimize",
    }
    lines = [line, {**line, "step": 2, "value": 0.5, "goal": "any"}, {**line, "name": None}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    (curve,) = read_curves(tmp_path / "metrics.jsonl")
    assert (curve.label, curve.at, curve.values, curve.goal) == (
        "rmse",
        [1.0, 2.0],
        [1.0, 0.5],
        "min",
    )
