"""A proof against the stand-in, one stack up for many tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import needs
from tests.fakes.one_azure.proof import Proof, standing_proof
from tests.tools.prove_azure.deviations import find_runtimes


@pytest.fixture(scope="module")
def runtimes() -> dict[str, Path]:
    """What stands for the images."""
    with needs.whole_environment():
        return find_runtimes()


@pytest.fixture(scope="module")
def module_proof(
    tmp_path_factory: pytest.TempPathFactory, runtimes: dict[str, Path]
) -> Iterator[Proof]:
    """One clone and one subscription for all tests of a module."""
    with (
        needs.whole_environment(),
        standing_proof(tmp_path_factory.mktemp("prove") / "azure", runtimes) as proof,
    ):
        yield proof


@pytest.fixture
def proof(module_proof: Proof) -> Proof:
    """A subscription that nothing was ever made in."""
    module_proof.forget()
    return module_proof


@pytest.fixture
def private_proof(tmp_path: Path, runtimes: dict[str, Path]) -> Iterator[Proof]:
    """A subscription for a private stack."""
    with standing_proof(tmp_path / "azure", runtimes, stack="test-prove") as proof:
        yield proof


@pytest.fixture(scope="module")
def kept(module_proof: Proof, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stack that is up: copies of what both sides have kept of it."""
    module_proof.forget()
    assert module_proof.prove("--only", "ask", "up", "--keep") == 0
    copies = tmp_path_factory.mktemp("kept")
    module_proof.keep(copies)
    return copies


@pytest.fixture
def up(module_proof: Proof, kept: Path) -> Proof:
    """The stack as it was when it came up, whatever the last test has done to it."""
    module_proof.restore(kept)
    return module_proof
