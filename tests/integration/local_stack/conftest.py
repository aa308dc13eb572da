"""A project of its own per test: real Pulumi, real Azurite, own folders, ports and state."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from azure.storage.blob import BlobClient

from infra.local import azurite_server
from tools.local_stack import write_wrapper
from tools.project import Project

REPO = Path(__file__).parents[3]


@dataclass
class LocalProject:
    """A copy of what Pulumi reads, in a folder of its own, with a stack `local`."""

    root: Path
    settings: dict[str, Any] = field(default_factory=dict)
    log: str = ""

    @property
    def storage(self) -> Path:
        return self.root / self.settings["storage"]["folder"]

    @property
    def workspace(self) -> Path:
        return self.root / self.settings["workspace"]["folder"]

    @property
    def state_file(self) -> Path:
        return self.root / ".trainyard/state/.pulumi/stacks/trainyard/local.json"

    @property
    def environment_variables(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PULUMI_", "TRAINYARD_"))}
        # The wrapper puts the project's own .venv first, as in a real clone; this one holds
        # nothing but the wrapper, so the interpreter must come next.
        return kept | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}

    def write_settings(self) -> None:
        config: dict[str, Any] = {f"trainyard:{k}": v for k, v in self.settings.items()}
        committed = yaml.safe_load((REPO / "Pulumi.local.yaml").read_text())
        text = yaml.safe_dump({"encryptionsalt": committed["encryptionsalt"], "config": config})
        (self.root / "Pulumi.local.yaml").write_text(text)

    def pulumi_command(self, *arguments: str) -> list[str]:
        return [str(self.root / ".venv/bin/pulumi"), *arguments, "--non-interactive"]

    def pulumi(
        self, *arguments: str, check: bool = True, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.pulumi_command(*arguments),
            cwd=self.root,
            env=self.environment_variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            **options,
        )
        assert not check or done.returncode == 0, done.stdout
        return done

    def up(self, *arguments: str, check: bool = True) -> str:
        self.write_settings()
        options = ["-s", "local", "--yes", "--skip-preview", "--suppress-outputs"]
        return self.pulumi("up", *options, *arguments, check=check).stdout

    def destroy(self, *, check: bool = True) -> str:
        return self.pulumi("destroy", "-s", "local", "--yes", "--skip-preview", check=check).stdout

    def refresh(self) -> str:
        return self.pulumi("refresh", "-s", "local", "--yes", "--skip-preview").stdout

    def launch(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "jobs.cli", *arguments],
            cwd=self.root,
            env=self.environment_variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    def resources(self) -> dict[str, dict[str, Any]]:
        """The stack's resources in Pulumi's record, by name."""
        checkpoint = json.loads(self.state_file.read_text())["checkpoint"]["latest"]
        assert not checkpoint.get("pending_operations"), checkpoint["pending_operations"]
        return {each["urn"].rpartition("::")[2]: each for each in checkpoint.get("resources", [])}

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

    def plugins(self) -> list[int]:
        """Processes of Pulumi's that run for this project."""
        home = f"PULUMI_HOME={self.root}/.trainyard/pulumi-home".encode()
        return [
            pid
            for pid, argv in read_command_lines().items()
            if any(b"pulumi" in word for word in argv) and home in read_variables(pid)
        ]

    def is_healthy(self) -> bool:
        """Whether one Azurite runs, as declared, with both containers."""
        server = self.server()
        return (
            self.azurites() == [server.pid]
            and server.port == self.settings["storage"]["port"]
            and azurite_server.find_missing_containers(self.storage, server) == set()
        )


def read_command_lines() -> dict[int, list[bytes]]:
    """The words of every process's command line."""
    found: dict[int, list[bytes]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            found[int(entry.name)] = (entry / "cmdline").read_bytes().split(b"\0")
    return found


def read_variables(pid: int) -> list[bytes]:
    """The environment of a process; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


@pytest.fixture(scope="session")
def new_port() -> Callable[[], int]:
    """Gives ports that were free a moment ago, each once."""
    given: set[int] = set()

    def give() -> int:
        while True:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port: int = probe.getsockname()[1]
            if port not in given:
                given.add(port)
                return port

    return give


@contextmanager
def fresh_project(root: Path, port: int) -> Iterator[LocalProject]:
    """A project whose stack was never up; what it started is ended afterwards."""
    tools = REPO / ".trainyard" / "tools.json"
    assert tools.exists(), "`make setup` installs Pulumi and Azurite, which these tests run"
    made = LocalProject(root=root)
    made.settings = {
        "engine": "local",
        "storage": {"port": port, "folder": "data/storage"},
        "workspace": {"folder": "data/workspace"},
        "clusters": {"cpu": {"nodes": 2, "processes_per_node": 2}},
    }
    for name in ("Pulumi.yaml", "infra/__main__.py", ".trainyard/tools.json"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPO / name, root / name)
    (root / ".venv" / "bin").mkdir(parents=True)
    pulumi = Path(json.loads(tools.read_text())["pulumi"]).parent
    write_wrapper(Project(root=root, cache=root / "cache"), pulumi)
    made.write_settings()
    made.pulumi("stack", "init", "local")
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
