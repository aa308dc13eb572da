"""What the campaigns on transfers share: an Azurite behind a flaky proxy, and `launch data` on it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from infra.local import azurite_server
from jobs.blobs.store import BLOCK_BYTES, BlobStore, Incoming, Outgoing, open_data_store
from jobs.contracts.spec import Environment
from tests.fakes.azurite import azurite, port_of
from tests.fakes.flaky_proxy import FlakyProxy
from tests.fakes.typed_launch import begin_launch


@dataclass(frozen=True, kw_only=True)
class FlakyStore:
    """One Azurite in `storage`, and the proxy that the environment file names in its place."""

    folder: Path
    storage: Path
    proxy: FlakyProxy
    environment: Environment

    @property
    def _environ(self) -> dict[str, str]:
        return {**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache")}

    @property
    def env_file(self) -> Path:
        """What `launch --env` is given."""
        return self.folder / "environment.json"

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Begin a `launch data` command."""
        return subprocess.Popen(
            [sys.executable, "-m", "jobs.cli", "data", *arguments, "--env", str(self.env_file)],
            cwd=self.folder,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def launch(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a `launch data` command to its end."""
        argv = ["data", *arguments, "--env", str(self.env_file)]
        typed = begin_launch(argv, environ=self._environ, folder=self.folder).end()
        assert typed.code is not None, f"nothing came of {arguments}: {typed.err}"
        return subprocess.CompletedProcess(arguments, typed.code, typed.out, typed.err)

    def succeed(self, *arguments: str) -> None:
        """Run a command that has to work."""
        done = self.launch(*arguments)
        assert done.returncode == 0, done.stderr

    def open(self) -> BlobStore:
        """The store as `launch` sees it, in this process."""
        return open_data_store(self.environment)

    def kill_azurite(self) -> None:
        """End it as a power cut would: what it acknowledged in the last 5 s may be forgotten."""
        server = azurite_server.read_server(self.storage)
        assert server is not None
        assert server.pid is not None
        os.kill(server.pid, 9)

    def start_azurite(self) -> None:
        """Have it run again, as it was."""
        azurite_server.start(self.storage)


@contextmanager
def flaky_store(folder: Path) -> Iterator[FlakyStore]:
    """Start Azurite with its blobs below the folder, behind a proxy; ends both."""
    with azurite(folder) as environment, FlakyProxy(port_of(environment)) as proxy:
        storage = environment.storage
        endpoint = f"http://127.0.0.1:{proxy.port}/{storage.account}"
        behind = msgspec.structs.replace(
            environment, storage=msgspec.structs.replace(storage, blob_endpoint=endpoint)
        )
        assert storage.folder is not None
        made = FlakyStore(
            folder=folder, storage=Path(storage.folder), proxy=proxy, environment=behind
        )
        made.env_file.write_bytes(msgspec.json.encode(behind))
        yield made


def outgoing(path: Path, name: str) -> Outgoing:
    """What a scan says of a file."""
    content = path.read_bytes()
    blocks = [content[at : at + BLOCK_BYTES] for at in range(0, len(content), BLOCK_BYTES)]
    return Outgoing(
        name=name,
        path=path,
        bytes=len(content),
        md5=hashlib.md5(content).digest(),
        block_md5s=tuple(hashlib.md5(each).digest() for each in blocks) if len(blocks) > 1 else (),
    )


def incoming(path: Path, name: str, content: bytes) -> Incoming:
    """What a manifest says of a file."""
    return Incoming(
        name=name,
        path=path,
        bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        mode=0o644,
    )
