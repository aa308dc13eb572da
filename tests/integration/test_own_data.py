"""A data set of the user's own that draws: what each sample draws follows from seed, epoch and index alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

CHECKS = "tests.integration.programs.own_draws"
NUM_SAMPLES = 12


@pytest.fixture(scope="module")
def found(zygote, tmp_path_factory) -> dict[str, Any]:
    """What own_draws.py found: of each sample three numbers, by torch, random and NumPy."""
    return json.loads(zygote.run(CHECKS, folder=tmp_path_factory.mktemp("draws")))


def values(drawn: dict[str, list[float]]) -> set[float]:
    return {value for numbers in drawn.values() for value in numbers}


def test_samples_draw_anew_in_each_epoch_and_by_each_seed(found):
    each = [values(found[name]) for name in ("epoch 1", "epoch 2", "seed 2")]
    assert [len(drawn) for drawn in each] == [3 * NUM_SAMPLES] * 3
    assert len(set.union(*each)) == 9 * NUM_SAMPLES


@pytest.mark.parametrize("name", ["1 worker", "2 workers"])
def test_samples_draw_alike_with_and_without_workers(found, name):
    assert found[name] == found["epoch 1"]
    assert found["epoch 2, 1 worker"] == found["epoch 2"]


def test_samples_draw_alike_on_each_rank_and_no_two_ranks_draw_the_same(found):
    first, second = found["ranks"]
    assert [len(first), len(second)] == [NUM_SAMPLES // 2] * 2
    assert first | second == found["epoch 1"]


@pytest.mark.parametrize("name", ["resumed", "resumed, 2 workers"])
def test_an_epoch_that_is_resumed_in_its_middle_draws_as_if_it_had_gone_on(found, name):
    assert len(found[name]) == NUM_SAMPLES - 4
    assert found[name] == {index: found["epoch 1"][index] for index in found[name]}


def test_each_evaluation_draws_the_same(found):
    first, *others = found["evaluated"]
    assert set(first) == {"loss", "sum"}
    assert others == [first, first]


def test_draws_of_samples_move_no_generator_that_the_training_draws_from(found):
    assert found["generators stay"] is True


def test_asking_for_figures_before_the_training_moves_no_generator_either(found):
    assert found["asks apart"] is True


def test_a_split_that_is_drawn_by_a_global_generator_is_the_same_in_each_process(found):
    """Ranks would train on what others evaluate on, and a resumed training on what it had held out."""
    splits = found["splits"]
    assert splits["first"] == splits["second"]
    assert [sorted(order) for order in splits["first"]] == [list(range(NUM_SAMPLES))] * 3
    assert splits["generators stay"] is True


def test_parts_of_a_step_have_the_samples_of_the_large_batch_over_all_ranks(found):
    (whole,) = found["whole"]
    assert [[len(part) for part in parts] for parts in found["parts"]] == [[2, 2]] * 2
    parts = [sample for rank in found["parts"] for part in rank for sample in part]
    assert sorted(parts) == sorted(whole)
