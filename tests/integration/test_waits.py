"""Steps in which no host waits for its GPU: counted operation by operation, on a GPU that is made up."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.gpu.trainings import TORCHVISIONS

CHECKS = "tests.integration.programs.wait_checks"


@pytest.fixture(scope="module")
def found(zygote, tmp_path_factory) -> dict[str, Any]:
    """What wait_checks.py found."""
    return json.loads(zygote.run(CHECKS, folder=tmp_path_factory.mktemp("checks")))


def test_each_kind_of_wait_is_counted_and_nothing_else(found):
    file = "wait_checks.py"
    assert found["by_hand"] == {
        f"{file}: _local_scalar_dense": 2,
        f"{file}: _to_copy": 4,
        f"{file}: copy_": 1,
    }


def test_no_step_of_a_program_waits_but_for_a_scaler_of_an_optimizer_that_is_not_fused(found):
    programs = found["programs"]
    scaled = programs.pop("fp16, lamb")
    assert set(programs) == {
        *("mnist", "head", "all", "bf16, mixed, averaged", "accumulated", "adamw", "lamb"),
        *("fp16", "fp16, adamw", "noise", "own"),
    }
    assert programs == {name: {} for name in programs}
    # Two steps, each of which asks whether gradients overflowed.
    assert scaled == {"precision.py: _local_scalar_dense": 2}


def test_the_next_batch_is_copied_before_one_is_computed_on_which_waits_for_its_own_copy_alone(
    found,
):
    assert found["ahead"] == [
        *("copied 1", "copied 2", "waits for 1", "computes 1"),
        *("copied 3", "waits for 2", "computes 2"),
        *("waits for 3", "computes 3"),
    ]


def test_mask_rcnn_waits_in_torchvision_alone_and_copies_without_a_wait(found):
    detector = found["detector"]
    assert detector["copies"] == {}
    assert detector["devices"] == ["cuda"]
    files = {place.partition(":")[0] for place in detector["within"]}
    assert files
    assert files <= TORCHVISIONS
