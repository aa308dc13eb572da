"""Steps in which no host waits for its GPU: counted operation by operation, on a GPU that is made up."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from tests.gpu.trainings import NUM_QUESTIONS, TORCHVISIONS

CHECKS = "tests.integration.programs.wait_checks"
# Between them: a scaler that asks, weights that are averaged, mixed pictures, bf16, a norm that is
# clipped, an optimizer that skips a step by itself, and data of one's own.
SOME = ("mnist, fp16", "head", "bf16, mixed, averaged", "fp16, lamb", "own")
ALL = (
    *(
        "mnist",
        "mnist, fp16",
        "head",
        "all",
        "bf16, mixed, averaged",
        "accumulated",
        "adamw",
        "lamb",
    ),
    *("fp16", "fp16, adamw", "fp16, lamb", "noise", "own"),
)


@pytest.fixture(scope="module")
def found(zygote, tmp_path_factory) -> dict[str, Any]:
    """What wait_checks.py found."""
    return json.loads(zygote.run(CHECKS, *SOME, folder=tmp_path_factory.mktemp("checks")))


def test_each_kind_of_wait_is_counted_and_nothing_else(found):
    file = "wait_checks.py"
    assert found["by_hand"] == {
        f"{file}: _local_scalar_dense": 2,
        f"{file}: _to_copy": 4,
        f"{file}: copy_": 1,
    }


def waits_of(names: Iterable[str]) -> dict[str, dict[str, int]]:
    """What has to be found: two steps, each of which asks whether gradients overflowed."""
    scaled = {"precision.py: _local_scalar_dense": 2}
    return {name: scaled if name == "mnist, fp16" else {} for name in names}


def test_no_step_of_these_programs_waits_but_for_a_scaler_of_an_optimizer_that_is_not_fused(found):
    assert found["programs"] == waits_of(SOME)


@pytest.mark.faults
def test_no_step_of_a_program_waits_but_for_a_scaler_of_an_optimizer_that_is_not_fused(
    zygote, tmp_path
):
    found = json.loads(zygote.run(CHECKS, folder=tmp_path))
    assert found["programs"] == waits_of(ALL)


def test_the_next_batch_is_copied_before_one_is_computed_on_which_waits_for_its_own_copy_alone(
    found,
):
    assert found["ahead"] == [
        *("copied 1", "copied 2", "waits for 1", "computes 1"),
        *("copied 3", "waits for 2", "computes 2"),
        *("waits for 3", "computes 3"),
    ]


def test_mask_rcnn_waits_seldom_and_copies_without_a_wait(found):
    detector = found["detector"]
    assert detector["copies"] == {}
    assert detector["devices"] == ["cuda"]
    # Mean and deviation of pixels, once for all.
    assert detector["scaled"] == [2, 0]
    within = detector["within"]
    # Once for the heads' regions and once for each pool, in two steps of two pictures.
    assert within.pop("maskrcnn_waits.py: tolist") == 2 * NUM_QUESTIONS
    files = {place.partition(":")[0] for place in within}
    # Of a CPU's own tensors: the picture's size, and torchvision's choice of regions.
    assert files - {"torchvision/transform.py", "torchvision/boxes.py"} <= TORCHVISIONS
    # 66 by torchvision's own parts.
    assert 0 < sum(within.values()) <= 22
