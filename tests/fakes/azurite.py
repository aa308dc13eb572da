"""Runs a real Azurite for a test, with the environment that names it: Microsoft's own blob service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from infra.local import azurite_server
from jobs.contracts.spec import Environment, Storage
from tests.fakes.gangs import make_environment
from tests.needs import tools_of_set_up
from tests.ports import free_port


@contextmanager
def azurite(folder: Path) -> Iterator[Environment]:
    """Serve the empty containers `data` and `runs` until the end of the test."""
    tools = tools_of_set_up()
    storage, port = folder / "storage", free_port()
    server = azurite_server.Server(
        account="trainyard",
        port=port,
        node=tools["node"],
        azurite=tools["azurite"],
        containers=("data", "runs"),
    )
    azurite_server.start(storage, server)
    try:
        made = make_environment(folder / "workspace")
        yield msgspec.structs.replace(
            made,
            storage=Storage(
                account=server.account,
                blob_endpoint=f"http://127.0.0.1:{port}/{server.account}",
                containers=made.storage.containers,
                folder=str(storage),
            ),
        )
    finally:
        azurite_server.stop(storage)


def port_of(environment: Environment) -> int:
    """The port that the environment's store listens at."""
    port = urlsplit(environment.storage.blob_endpoint).port
    assert port is not None
    return port
