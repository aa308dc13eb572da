"""Networks of the user's own and files of weights are compared with the classes of the data (PyTorch)."""

from __future__ import annotations

import json
from typing import Any

import pytest

CHECKS = "tests.integration.programs.own_heads"


@pytest.fixture(scope="module")
def found(zygote, tmp_path_factory) -> dict[str, Any]:
    """What own_heads.py found."""
    folder = tmp_path_factory.mktemp("heads")
    return json.loads(zygote.run(CHECKS, folder=folder).splitlines()[-1])


def test_a_network_of_other_outputs_than_the_data_has_classes_is_refused_before_the_first_step(
    found,
):
    hint = "(hint: a last layer of `num_classes` outputs, which build() is given)"
    told = (
        "error: build() makes a network that gives {} for a picture: the data has 4 classes " + hint
    )
    outputs = found["outputs"]
    assert outputs["three"] == [1, told.format("outputs of shape (3,)")]
    assert outputs["five"] == [1, told.format("outputs of shape (5,)")]
    for name in ("two tensors", "two while it trains"):
        assert outputs[name] == [1, told.format("no single tensor")]


def test_a_network_by_name_beside_ones_own_is_refused(found):
    code, line = found["outputs"]["named"]
    assert (code, "--network resnet51 is not what trains here" in line) == (2, True)


def test_a_network_that_is_asked_for_scores_trains_as_if_it_had_not_been(found):
    """One with batch norm and dropout, and one that draws from every generator whenever it is asked."""
    runs = found["losses"]
    assert len(runs) == 4
    for asked, not_asked in (runs[:2], runs[2:]):
        assert asked[0] == 0
        assert len(asked[1]) == 3
        assert asked == not_asked


def test_a_head_for_other_classes_of_the_same_number_begins_anew_and_says_so(found):
    unknown = "`source.safetensors` is for other classes: ants, bees; not cats, dogs"
    assert found["heads"] == {
        "ants bees": ["", [], [True, True]],
        "cats dogs": [unknown, [f"{unknown}: a new head"], [True, False]],
    }


def test_the_digest_of_weights_is_what_it_was_and_halves_have_one(found):
    """Of bf16 it was an error after the last step, before the model was written."""
    assert found["digests"] == [True, [32]]


def test_a_file_whose_tensors_have_numbers_for_names_is_one_line(found):
    told = "no weights can be read from `numbered.pth`: it is no file of tensors and nothing else"
    assert found["numbered"] == told


def test_a_description_of_mask_rcnn_that_does_not_fit_its_weights_is_one_line(found):
    begin = "`masks.json` does not describe weights of Mask R-CNN: "
    assert found["masks"] == {
        "whole": "taken",
        "fewer": f"{begin}it names 2 classes, and the weights tell others",
        "more": f"{begin}it names 4 classes, and the weights tell others",
        "no size": f"{begin}image_size is 0, no whole number of 1 to 4096",
        "huge": f"{begin}image_size is 1000000, no whole number of 1 to 4096",
        "a text": f"{begin}image_size is '96', no whole number of 1 to 4096",
        "letters": f"{begin}its classes are no names",
        "deep": f"{begin}it is nested too deeply",
    }
