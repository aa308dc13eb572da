"""Fixtures of the tests with real frameworks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import needs
from tests.fakes.gangs import Gangs
from tests.fakes.launched_store import Store, launched_store


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A local stack's store that all tests of a process share: names of data sets are a test's own."""
    with launched_store(tmp_path_factory.mktemp("store")) as made:
        yield made


@pytest.fixture
def torch_gangs(tmp_path: Path) -> Iterator[Gangs]:
    """A local engine whose ranks run in the pytorch image's runtime."""
    yield from _gangs_of("pytorch", tmp_path)


@pytest.fixture
def tensorflow_gangs(tmp_path: Path) -> Iterator[Gangs]:
    """A local engine whose ranks run in the tensorflow image's runtime."""
    yield from _gangs_of("tensorflow", tmp_path)


@pytest.fixture
def keras2_gangs(tmp_path: Path) -> Iterator[Gangs]:
    """A local engine whose ranks run in the tensorflow-keras2 image's runtime; none on Python 3.12."""
    yield from _gangs_of("tensorflow-keras2", tmp_path)


def _gangs_of(image: str, workspace: Path) -> Iterator[Gangs]:
    interpreter = needs.runtime(image)
    made = Gangs(workspace, interpreter=interpreter)
    yield made
    made.end()
