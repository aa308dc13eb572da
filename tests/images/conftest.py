"""Fixtures of the images' tests."""

from pathlib import Path

import pytest

from tests import needs
from tests.images.checkov import checkov_environment

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def checkov():
    """The environment that holds Checkov."""
    with needs.whole_environment():
        return checkov_environment(ROOT)
