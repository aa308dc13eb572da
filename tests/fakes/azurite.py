"""Runs a real Azurite for a test, with the environment that names it: Microsoft's own blob service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from infra.local import azurite_server
from jobs.contracts.spec import Environment, Storage
from tests.fakes.gangs import make_environment
from tests.ports import free_port

TOOLS = Path(__file__).parents[2] / ".trainyard" / "tools.json"


@contextmanager
def azurite(folder: Path) -> Iterator[Environment]:
    """Serve the empty containers `data` and `runs` until the end of the test."""
    if not TOOLS.exists():
        pytest.skip("Azurite is not installed: `make setup` installs it")
    tools = json.loads(TOOLS.read_text())
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
