"""Finding 9: who listens on Azurite's port is taken for the local store.

The attacker is any local user who is first on the port, after a reboot or Azurite's death. He gets
what is pushed, answers pulls with data and digests of his own, and is shown a run's SAS.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest

from infra.local import azurite_server
from infra.local.azurite_server import AzuriteError, Server
from infra.local.process_identity import identify
from jobs.blobs.authority import SharedKey
from jobs.blobs.azure_store import AzureStore
from jobs.blobs.container import Container
from jobs.blobs.store import open_data_store
from jobs.contracts.errors import EnvironmentFailure
from jobs.contracts.spec import Environment, Storage
from tests.fakes.gangs import make_environment
from tests.fakes.other_user import needs_root, squatting
from tests.fakes.own_stack import lay_own_stack
from trainer.common.errors import TrainingError
from trainer.data.streaming.store import RangeStore, RemoteFile

pytestmark = needs_root
OURS = {"pid": os.getpid(), "identity": identify(os.getpid())}
DEAD = {"pid": os.getpid(), "identity": "another boot/1"}


def server_of(port: int, process: dict[str, Any]) -> Server:
    return Server(
        account="trainyard", port=port, node="/n", azurite="/a", containers=("data",), **process
    )


def environment_at(folder: Path, port: int, process: dict[str, Any]) -> Environment:
    """A local one whose store was started once by such a process."""
    folder.mkdir()
    (folder / "account.key").write_text("a2V5")
    azurite_server._write_server(folder, server_of(port, process))
    made = make_environment(folder / "workspace")
    storage = Storage(
        account="trainyard",
        blob_endpoint=f"http://127.0.0.1:{port}/trainyard",
        containers=made.storage.containers,
        folder=str(folder),
    )
    return msgspec.structs.replace(made, storage=storage)


@pytest.mark.parametrize("process", [OURS, DEAD], ids=["ours lives", "ours is dead"])
def test_another_users_port_is_not_our_store(tmp_path: Path, process: dict[str, Any]) -> None:
    with squatting() as squatter:
        environment = environment_at(tmp_path / "storage", squatter.port, process)
        with pytest.raises(EnvironmentFailure) as refused:
            open_data_store(environment).create("x", b"my private data")
    assert squatter.received == b""
    assert refused.value.message == (
        f"port {squatter.port} of 127.0.0.1, the local store's, is held by user `nobody` "
        "(uid 65534); nothing was sent there"
    )
    assert refused.value.hint is not None
    assert f"sport = :{squatter.port}" in refused.value.hint


def test_who_takes_the_port_meanwhile_is_sent_nothing() -> None:
    """The store was ours when it was opened, and died under a push."""
    with squatting() as squatter:
        container = Container(
            f"http://127.0.0.1:{squatter.port}/trainyard/data", SharedKey("trainyard", "a2V5")
        )
        store = AzureStore(container, lambda error: EnvironmentFailure(error.text))
        with pytest.raises(EnvironmentFailure, match=r"`nobody` \(uid 65534\), another user"):
            store.create("x", b"my private data")
    assert squatter.received == b""


def test_our_own_program_on_the_port_is_not_the_store_of_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        environment = environment_at(tmp_path / "storage", port, DEAD)
        lay_own_stack(tmp_path, msgspec.to_builtins(environment), {"node": "/n", "azurite": "/a"})
        with pytest.raises(EnvironmentFailure) as refused:
            open_data_store(environment)
    assert f"port {port} of 127.0.0.1 is in use by another program of user `root`" in str(
        refused.value
    )


def test_store_is_neither_started_on_a_squatted_port_nor_found_there(tmp_path: Path) -> None:
    with squatting() as squatter:
        environment_at(tmp_path / "storage", squatter.port, DEAD)
        with pytest.raises(AzuriteError, match="in use by another program of user `nobody`"):
            azurite_server.start(tmp_path / "storage")
        server = server_of(squatter.port, OURS)
        assert azurite_server.find_missing_containers(tmp_path / "storage", server) is None
    assert squatter.received == b""


def test_streaming_rank_shows_its_signature_to_nobody_else(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sv=1&sig=secret")
    with squatting() as squatter:
        store = RangeStore(f"http://127.0.0.1:{squatter.port}/a/data", tmp_path / "key")
        with pytest.raises(TrainingError, match="is held by another user of this machine"):
            store.read(RemoteFile(path="x", bytes=1), 0, 1)
    assert squatter.received == b""
