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


@pytest.mark.parametrize("program", ["cubes", "drawn"])
def test_what_a_training_draws_by_each_generator_follows_from_the_seed(found, program):
    draws = found["draws"]
    assert draws["cubes, seed 1"][0][:4] == draws["by torch.manual_seed(1)"]
    first, again, other = (
        draws[f"{program}, {what}"][1:] for what in ("seed 1", "again", "seed 2")
    )
    assert first == again
    runs = ("seed 1", "again", "seed 2", "predict", "predict again")
    assert [draws[f"{program}, {what}"][2] for what in runs] == [""] * 5
    # random's and NumPy's.
    assert [a != b for a, b in zip(first[0], other[0], strict=True)] == [True, True]


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


def test_a_models_file_has_the_whole_name_that_is_given(found):
    """Where a dot of a name cut it, the model of unet-v1.5 was called 5."""
    refused = "the model's file cannot have the name {!r} (hint: a name of letters, digits, dots and dashes)"
    assert found["names"] == {
        "unet-v1.5": ["unet-v1.5.json", "unet-v1.5.safetensors"],
        "trainer.pytorch.own_line": ["own_line.json", "own_line.safetensors"],
        **{name: refused.format(name) for name in ("mine/unet", "")},
    }


def test_a_task_that_names_no_option_of_its_batch_trains_and_has_no_largest_one(found):
    assert found["unnamed"] == [
        "",
        "--find-batch looks for the largest --chunk, and cubes has no such option "
        "(hint: batch_option of the task: the name of its option)",
    ]


def test_a_sample_that_is_no_pair_is_told_as_what_it_is(found):
    """A dictionary of two was unpacked to its keys."""
    refused = (
        "a data set of data() gives {} for a sample, which is no input and target (hint: a set "
        'whose __getitem__ gives a pair: `return each["image"], each["label"]`)'
    )
    shapes = {"dictionary": "a dict of image, label", "three": "a tuple of 3", "one": "a Tensor"}
    told = {name: refused.format(what) for name, what in shapes.items()}
    assert found["samples"] == {"list": 6, "named": 6, **told}


def test_a_norm_in_several_places_is_one_norm_over_all_ranks_in_each(found):
    """The second place in one parent kept the statistics of its own rank."""
    assert found["norms"] == ["SharedBatchNorm", True, True]


def test_a_network_that_no_average_can_copy_is_told_by_its_weight(found):
    assert found["averages"] == [
        "--ema cannot copy `1.weight`, which is computed of other weights "
        "(hint: nn.utils.parametrizations.weight_norm, or spectral_norm, in its place)",
        6,
    ]


def test_batches_of_each_kind_are_moved_whole_and_keep_their_kind(found):
    moved = {**found["moved"]}
    assert [moved.pop("default's own"), moved.pop("taken apart")] == [[], False]
    assert moved == {
        "number first": ["tuple", [0.5, "meta"]],
        "name first": ["list", ["a", "meta"]],
        "numbers": ["list", [1, 2]],
        "default": ["defaultdict", ["meta"]],
        "ordered": ["OrderedDict", ["meta"]],
        "proxy": ["mappingproxy", ["meta"]],
        "named": ["Two", ["meta", "meta"]],
        # Its sizes stay in the host's memory, where torch wants them.
        "packed": ["PackedSequence", ["meta", "cpu", "meta", "meta"]],
    }
