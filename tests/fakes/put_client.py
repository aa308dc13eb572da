"""Stands in for the client of Azure's management API where all that is asked of it is a PUT."""

from __future__ import annotations

from typing import Any

from jobs.contracts.errors import EnvironmentFailure
from jobs.contracts.spec import Environment
from tests.fakes.cloud_stack import WORKSPACE


class PutClient:
    """Keeps what is put, or refuses it."""

    workspace = WORKSPACE

    def __init__(self, environment: Environment, refusal: EnvironmentFailure | None = None) -> None:
        self.environment = environment
        self.put_bodies: list[tuple[str, Any]] = []
        self._refusal = refusal

    def put(self, path: str, body: Any) -> None:
        if self._refusal is not None:
            raise self._refusal
        self.put_bodies.append((path, body))
