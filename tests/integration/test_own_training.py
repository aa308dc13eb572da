"""A network, loss and figures of the user's own: what own.main's training makes of them, in one process."""

from __future__ import annotations

import json
from typing import Any

import pytest

CHECKS = "tests.integration.programs.own_checks"


@pytest.fixture(scope="module")
def found(zygote, tmp_path_factory) -> dict[str, Any]:
    """What own_checks.py found."""
    return json.loads(zygote.run(CHECKS, folder=tmp_path_factory.mktemp("own")))


def test_a_network_with_convolutions_in_three_dimensions_trains(found):
    """PyTorch cannot lay their weights channels last, as those in two dimensions."""
    assert found["convolved"] == {
        "steps": 6,
        "2d is channels last": True,
        "3d is contiguous": True,
    }
