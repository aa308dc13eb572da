"""Deletes blobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from jobs.blobs.transfers.connection import Connection, Steps
from jobs.blobs.transfers.container import Container
from jobs.blobs.transfers.crew import Job
from jobs.blobs.transfers.pace import Pace


class Deletion:
    """The jobs of one `delete`."""

    def __init__(self, container: Container, names: Iterable[str], pace: Pace) -> None:
        self._container = container
        self._names: Iterator[str] = iter(names)
        self._pace = pace

    def next_job(self) -> Job | None:
        """See Jobs."""
        name = next(self._names, None)
        return None if name is None else partial(self._delete, name)

    def _delete(self, name: str, connection: Connection) -> Steps[None]:
        yield from self._container.request(
            connection, "DELETE", name, accept=("BlobNotFound",), pace=self._pace
        )
