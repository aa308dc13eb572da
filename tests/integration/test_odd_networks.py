"""PyTorch's loop with networks that draw as they are built or that no checkpoint holds, and with samples and names of many kinds."""

from __future__ import annotations

import json
from typing import Any

import pytest

CHECKS = "tests.integration.programs.odd_networks"


@pytest.fixture(scope="module")
def found(zygote, tmp_path_factory) -> dict[str, Any]:
    """What odd_networks.py found."""
    return json.loads(zygote.run(CHECKS, folder=tmp_path_factory.mktemp("odd")))


@pytest.mark.parametrize("program", ["cubes", "drawn"])
def test_a_network_is_built_by_the_seed_and_for_predictions_by_that_of_its_model(found, program):
    """By each generator: an order of inputs that the state does not hold made predictions of noise."""
    drawn = {
        what: found["draws"][f"{program}, {what}"][0]
        for what in ("seed 1", "again", "seed 2", "predict", "predict again")
    }
    assert drawn["again"] == drawn["seed 1"]
    assert drawn["predict"] == drawn["predict again"] == drawn["seed 2"]
    # The order's four, random's and NumPy's.
    assert [len(set(pair)) for pair in zip(drawn["seed 1"], drawn["seed 2"], strict=True)] == [
        2
    ] * 6


def test_building_draws_as_before_by_torch_and_leaves_random_and_numpy_as_they_were(found):
    draws = found["draws"]
    by_torch = draws.pop("by torch.manual_seed(1)")
    assert draws["cubes, seed 1"][0][:4] == by_torch
    assert [[stays, told] for _, stays, told in draws.values()] == [[True, ""]] * len(draws)
