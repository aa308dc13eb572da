"""Fixtures of the images' tests."""

from pathlib import Path

import pytest

from jobs.contracts.errors import EnvironmentFailure
from tests.images.checkov import checkov_environment

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def checkov():
    """The environment that holds Checkov; the test is skipped where it cannot be installed."""
    try:
        return checkov_environment(ROOT)
    except EnvironmentFailure as failure:
        pytest.skip(failure.message)
