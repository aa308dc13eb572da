"""The fixture of tests/jobs: `launch` on an engine that starts nothing."""

from tests.jobs.conftest import launching  # noqa: F401
