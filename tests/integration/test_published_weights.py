"""Files with the names of torchvision's own weights are taken by the networks that are built here."""

from __future__ import annotations

import json
from typing import Any

import pytest

CHECKS = "tests.integration.programs.published_weights"


@pytest.fixture(scope="module")
def found(zygote, tmp_path_factory) -> dict[str, Any]:
    """What published_weights.py found."""
    return json.loads(zygote.run(CHECKS, folder=tmp_path_factory.mktemp("published")))


def test_published_files_give_the_scores_of_torchvisions_networks(found):
    """Auxiliary heads are left out, old names are renamed, and pictures scaled as they were learnt."""
    assert found["scores"] == {
        name: ["", True] for name in ("googlenet", "inception_v3", "mnasnet0_5", "densenet")
    }


def test_a_network_with_a_version_takes_its_own_model_and_checkpoint(found):
    """torchvision's MNASNet refuses tensors that do not say which version they are of."""
    assert found["of_a_version"] == [True, True]
