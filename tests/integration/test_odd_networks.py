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


def test_a_network_that_no_checkpoint_holds_is_told_by_its_part_before_the_first_step(found):
    dense = "keep its indices and values, and make it of them in forward()"
    sized = "give the layer its sizes, or call the network on an input in build()"
    told = {
        name: [0, f"`{part}` of the network is {what}, which no checkpoint holds (hint: {hint})"]
        for name, part, what, hint in (
            ("extra state", "_extra_state", "a dict", "get_extra_state() that gives a tensor"),
            ("sparse", "edges", "a sparse tensor", dense),
            ("sparse, not kept", "edges", "a sparse tensor", dense),
            ("lazy", "last.weight", "a tensor without a size", sized),
            (
                *("of 128 bits", "phase", "a tensor of torch.complex128"),
                "torch.float32, or torch.complex64",
            ),
        )
    }
    assert found["states"] == {**told, "a tensor": [6, None]}


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_complex_parameters_learn_and_resume_as_the_real_ones_that_they_consist_of(
    found, optimizer
):
    ours, real = (found["complexes"][f"{optimizer}, {kind}"] for kind in ("complex", "real"))
    assert ours[0] == real[0] == [6, 12]
    assert len(ours[2]) == 12
    for losses, expected in zip(ours[1:], real[1:], strict=True):
        assert losses == pytest.approx(expected, rel=1e-4)


def test_complex_parameters_are_refused_where_nothing_computes_with_them(found):
    told = found["complexes"]
    assert told["lamb"] == (
        "--optimizer lamb takes no complex parameters, and the network has some "
        "(hint: --optimizer adamw, or sgd)"
    )
    assert told["fp16"] == (
        "--precision fp16 scales gradients, and the network has complex parameters "
        "(hint: --precision bf16, or fp32)"
    )
    assert told["horovod"] == (
        "Horovod sends no complex numbers, and the network holds some (hint: --strategy ddp)"
    )
