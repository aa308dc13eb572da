"""A project of its own per test: real Pulumi, real Azurite, own folders, ports and state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from azure.storage.blob import BlobClient

from infra.local import azurite_server
from tests.ports import free_port
from tests.pulumi_project import REPO, PulumiProject, read_command_lines


@dataclass
class LocalProject(PulumiProject):
    """A project with a stack `local`."""

    log: str = ""

    @property
    def storage(self) -> Path:
        return self.root / self.settings["storage"]["folder"]

    @property
    def workspace(self) -> Path:
        return self.root / self.settings["workspace"]["folder"]

    def server(self) -> azurite_server.Server:
        server = azurite_server.read_server(self.storage)
        assert server is not None
        return server

    def open_blob(self) -> Any:
        """A client of one blob in the container `data`, by the SDK that `launch` uses."""
        key = (self.storage / azurite_server.KEY_FILE).read_text()
        return BlobClient(
            f"http://127.0.0.1:{self.settings['storage']['port']}/trainyard",
            "data",
            "blob",
            credential={"account_name": "trainyard", "account_key": key},
        )

    def azurites(self) -> list[int]:
        """Processes of Azurite that this project has started, whether it knows them or not."""
        mark = f"{self.root}/".encode()
        return [
            pid
            for pid, argv in read_command_lines().items()
            if b"--blobPort" in argv and any(word.startswith(mark) for word in argv)
        ]

    def is_healthy(self) -> bool:
        """Whether one Azurite runs, as declared, with both containers."""
        server = self.server()
        return (
            self.azurites() == [server.pid]
            and server.port == self.settings["storage"]["port"]
            and azurite_server.find_missing_containers(self.storage, server) == set()
        )


@pytest.fixture(scope="session")
def new_port() -> Callable[[], int]:
    """Gives ports that nobody has, each once."""
    return free_port


@contextmanager
def fresh_project(root: Path, port: int) -> Iterator[LocalProject]:
    """A project whose stack was never up; what it started is ended afterwards."""
    committed = yaml.safe_load((REPO / "Pulumi.local.yaml").read_text())
    made = LocalProject(root=root, stack="local")
    made.settings = {
        "engine": "local",
        "storage": {"port": port, "folder": "data/storage"},
        "workspace": {"folder": "data/workspace"},
        "clusters": {"cpu": {"nodes": 2, "processes_per_node": 2}},
    }
    made.settings_file.write_text(yaml.safe_dump({"encryptionsalt": committed["encryptionsalt"]}))
    made.lay()
    yield made
    for server in root.rglob(azurite_server.SERVER_FILE):
        azurite_server.stop(server.parent)
    assert made.azurites() == []


@pytest.fixture
def project(tmp_path: Path, new_port: Callable[[], int]) -> Iterator[LocalProject]:
    """A project of the test's own, not yet up."""
    with fresh_project(tmp_path, new_port()) as made:
        yield made


@pytest.fixture(scope="module")
def kept(
    tmp_path_factory: pytest.TempPathFactory, new_port: Callable[[], int]
) -> Iterator[LocalProject]:
    """One project for all tests of a module."""
    with fresh_project(tmp_path_factory.mktemp("standing"), new_port()) as made:
        yield made


@pytest.fixture
def standing(kept: LocalProject) -> LocalProject:
    """A project that is up: the module's, brought up again where the last test broke it."""
    if not kept.state_file.exists() or not kept.resources() or not kept.is_healthy():
        kept.log = kept.refresh() + kept.up()
    return kept
