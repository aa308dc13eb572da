"""Who judges the stand-ins for a store of blobs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jobs.contracts.spec import Environment
from tests.fakes.azurite import azurite


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """The environment of a real Azurite."""
    with azurite(tmp_path_factory.mktemp("azurite")) as environment:
        yield environment
