"""An environment's file starts nothing, and a store's folder names no program.

Attacker: who hands on an environment file (`--env FILE`), with a folder beside it. The local store
that it named was down, so any command that opens a store started the `node` of that folder's
server.json.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from infra.local import azurite_server
from infra.local.azurite_server import Server
from infra.local.storage_folder import AzuriteError
from jobs.cli import main
from tests.fakes.own_stack import lay_own_stack
from tests.fakes.pulumi_stack import ENVIRONMENT
from tests.ports import free_port

NOBODY = 65534


class Store:
    """A local store that is down, in a project; programs leave a file when they are started."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, root / "storage"
        self.folder.mkdir(parents=True, mode=0o700)
        self.port = free_port()
        self.environment = ENVIRONMENT | {
            "storage": {
                **ENVIRONMENT["storage"],
                "blob_endpoint": f"http://127.0.0.1:{self.port}/trainyard",
                "folder": str(self.folder),
            }
        }
        self.file = root / "environment.json"
        self.file.write_text(json.dumps(self.environment))
        server = Server(
            account="trainyard",
            port=self.port,
            node=self.program("evil"),
            azurite="x",
            containers=("data", "runs"),
        )
        azurite_server._write_server(self.folder, server)
        (self.folder / "account.key").write_text("a2V5")

    def program(self, name: str) -> str:
        path = self.root / f"{name}.sh"
        path.write_text(f'#!/bin/sh\necho "$1" > "{self.root}/{name}"\n')
        path.chmod(0o755)
        return str(path)

    def lay_project(self, *, is_trusted: bool = True) -> None:
        """Make it that of the stack `local`, as it was read the last time."""
        tools = {"node": self.program("good"), "azurite": "ours.js", "pulumi": "p"}
        lay_own_stack(self.root, self.environment, tools, is_trusted=is_trusted)

    def started(self) -> list[str]:
        return [name for name in ("evil", "good") if (self.root / name).exists()]


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TRAINYARD_STACK", raising=False)
    made = Store(tmp_path / "handed on")
    monkeypatch.chdir(made.root)
    return made


@pytest.mark.parametrize("words", [["data", "ls"], ["data", "show", "digits"]])
def test_a_file_starts_no_store(store, words, capsys):
    assert main([*words, "--env", str(store.file)]) == 1
    assert store.started() == []
    assert capsys.readouterr().err == (
        f"error: the local store http://127.0.0.1:{store.port}/trainyard is down, and is not of a "
        "stack of this project, which would be started again\n\n"
        "hint: for the owner of the stack: pulumi up -s local; then `launch env export` writes a "
        f"new {store.file}\n"
    )


def test_a_relative_folder_is_refused_in_a_file(store, capsys):
    storage = store.environment["storage"] | {"folder": "storage"}
    store.file.write_text(json.dumps(store.environment | {"storage": storage}))
    assert main(["data", "ls", "--env", str(store.file)]) == 2
    said = capsys.readouterr().err
    assert (store.started(), "`$.storage.folder`" in said) == ([], True)


def test_a_project_that_nobody_named_starts_no_store(store):
    store.lay_project(is_trusted=False)
    assert main(["data", "ls"]) == 3
    assert store.started() == []


def test_the_own_stacks_store_is_started_by_the_projects_own_programs(store, capsys):
    store.lay_project()
    assert main(["data", "ls"]) == 1
    assert "the local store is down and cannot be started: Azurite ended" in capsys.readouterr().err
    assert store.started() == ["good"]
    assert (store.root / "good").read_text() == "ours.js\n"


def test_a_file_that_another_store_stands_in_starts_none(store, tmp_path):
    store.lay_project()
    another = Store(tmp_path / "another")
    assert main(["data", "ls", "--env", str(another.file)]) == 1
    assert (store.started(), another.started()) == ([], [])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
@pytest.mark.parametrize("name", [".", "server.json"])
def test_what_another_user_wrote_is_not_started(store, name):
    os.chown(store.folder / name, NOBODY, NOBODY)
    with pytest.raises(AzuriteError, match="is another user's"):
        azurite_server.start(store.folder)
    assert store.started() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_a_new_store_is_not_made_in_a_folder_of_another_user(store, tmp_path):
    (tmp_path / "first").mkdir(mode=0o777)
    os.chown(tmp_path / "first", NOBODY, NOBODY)
    wanted = azurite_server.read_server(store.folder)
    with pytest.raises(AzuriteError, match=f"is another user's .uid {NOBODY}."):
        azurite_server.start(tmp_path / "first", wanted)
    assert list((tmp_path / "first").iterdir()) == []


@pytest.mark.parametrize(("name", "mode"), [(".", 0o777), ("server.json", 0o620)])
def test_what_others_can_write_is_not_started(store, name, mode):
    (store.folder / name).chmod(mode)
    with pytest.raises(AzuriteError, match=f"mode {mode:04o}"):
        azurite_server.start(store.folder)
    assert store.started() == []
