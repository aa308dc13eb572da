"""The environment of Checkov, which cannot share a lock with this project."""

from __future__ import annotations

from pathlib import Path

from tests.environments.laying import lay_environment

LOCK = Path(__file__).with_name("checkov.txt")


def checkov_environment(project: Path) -> Path:
    """The folder of the environment; made from checkov.txt once per machine and lock.

    Raises EnvironmentFailure where the package index is out of reach.
    """
    return lay_environment(LOCK, project, what="Checkov")
