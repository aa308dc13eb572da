"""What a saved model tells apart is compared with the data's classes, and with a network's outputs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainer.common.errors import TrainingError
from trainer.common.model_about import (
    model_name,
    require_classes,
    require_scores,
    saved_seed,
    why_new_head,
)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A file of weights whose description names ants and bees."""
    (tmp_path / "w.json").write_text(json.dumps({"classes": ["ants", "bees"]}))
    return tmp_path / "w.safetensors"


def test_a_head_for_other_classes_is_none_for_these(weights, tmp_path):
    told = f"`{weights}` is for other classes: ants, bees; not cats, dogs"
    assert why_new_head(weights, 2, ("cats", "dogs")) == told
    assert why_new_head(weights, 2, ("bees", "ants")).endswith(": ants, bees; not bees, ants")
    assert why_new_head(weights, 3, ("ants", "bees")) == f"`{weights}` is for 3 classes, not 2"
    assert why_new_head(weights, 2, ("ants", "bees")) == ""
    assert why_new_head(tmp_path / "without.pth", 2, ("cats", "dogs")) == ""


@pytest.mark.parametrize(
    "text",
    ['{"classes": 2}', '{"classes": {"0": "a"}}', '{"classes": []}', '["a", "b"]', "{", "\xff"],
)
def test_a_json_of_others_beside_weights_says_nothing_of_their_head(tmp_path, text):
    (tmp_path / "r.json").write_text(text, encoding="latin-1")
    assert why_new_head(tmp_path / "r.pth", 2, ("ants", "bees")) == ""


def test_a_model_of_other_classes_is_refused(weights):
    require_classes(weights, ["ants", "bees"])
    require_classes(weights, None)
    with pytest.raises(
        TrainingError, match=r"other classes apart than the data has: ants, bees; not x "
    ):
        require_classes(weights, ["x"])


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        ((1, 3), r"outputs of shape \(3,\) for a picture: the data has 2 classes"),
        ((None, 1), r"outputs of shape \(1,\)"),
        ((1, 2, 2), r"outputs of shape \(2, 2\)"),
        (None, "no single tensor"),
    ],
)
def test_a_network_without_a_score_for_each_class_is_refused(shape, told):
    with pytest.raises(TrainingError, match=told):
        require_scores(shape, ("ants", "bees"))


def test_a_score_for_each_class_is_what_is_wanted():
    require_scores((None, 2), ("ants", "bees"))
    require_scores((8, 2), ("ants", "bees"))


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("trainer.pytorch.mnist", "mnist"),
        ("trainer.tf.resnet50", "resnet50"),
        ("unet-v1.5", "unet-v1.5"),
        ("mine.trainer.unet", "mine.trainer.unet"),
        ("trainer", "trainer"),
    ],
)
def test_a_model_has_the_whole_name_of_its_training_or_our_modules_own(program, name):
    assert model_name(program) == name


@pytest.mark.parametrize("program", ["", "trainer.", "a/b", "../b", "a\\b", "a\nb", "a\0b"])
def test_a_name_that_no_file_has_is_refused(program):
    with pytest.raises(TrainingError, match="the model's file cannot have the name") as raised:
        model_name(program)
    assert repr(program) in str(raised.value)


@pytest.mark.parametrize(
    ("text", "seed"),
    [
        ('{"seed": 7}', 7),
        ('{"seed": -1}', -1),
        ('{"seed": true}', 3),
        ('{"seed": "7"}', 3),
        ('{"seed": 18446744073709551616}', 3),
        ("{}", 3),
        ("[7]", 3),
        ("{", 3),
    ],
)
def test_the_seed_of_a_model_is_what_its_description_says_where_it_is_one(weights, text, seed):
    weights.with_suffix(".json").write_text(text)
    assert saved_seed(weights, default=3) == seed
    assert saved_seed(weights.with_name("other.safetensors"), default=3) == 3
    assert saved_seed(Path(), default=3) == 3
