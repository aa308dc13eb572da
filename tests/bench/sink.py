"""A blob store that keeps nothing, on a core of its own: what a client's speed is measured against.

It stands for Azure at the network's edge. Whether a client is right is for Azurite to judge.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from tests.bench.workspace import local_environment
from tests.fakes.local_server import name_server

ACCOUNT = "bench"
KEY = base64.b64encode(b"a key that nothing checks, 32 b.").decode()
CLIENT_CORE, SINK_CORE = 0, 1
START_TIMEOUT_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Sink:
    """One running sink: where it listens, and the environment file that names it."""

    endpoint: str
    environment: Path

    @property
    def container_url(self) -> str:
        """The container that datasets go to."""
        return f"{self.endpoint}/data"

    def sas_url(self, path: str) -> str:
        """A URL with a signature, as azcopy wants one; the sink takes any."""
        end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
        rights = f"sv=2021-12-02&ss=b&srt=sco&sp=rwdlac&se={end:%Y-%m-%dT%H:%M:%SZ}"
        return f"{self.container_url}/{path}?{rights}&sig={quote(KEY, safe='')}"


@contextmanager
def running_sink(project: Path, *, delay_ms: int = 0) -> Iterator[Sink]:
    """Start an empty sink on its core, and end it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        port_file = folder / "port"
        # No two programs on one core, or the client's speed is the sink's as well.
        pinned = ["taskset", "-c", str(SINK_CORE % (os.cpu_count() or 1))]
        process = subprocess.Popen([*pinned, built_sink(project), port_file, str(delay_ms)])
        try:
            endpoint = f"http://127.0.0.1:{_port(port_file, process)}/{ACCOUNT}"
            environment = _environment(folder, endpoint)
            name_server(folder / "storage", pid=process.pid)
            yield Sink(endpoint=endpoint, environment=environment)
        finally:
            process.kill()
            process.wait()


def built_sink(project: Path) -> Path:
    """The sink's program; compiled the first time and after each change of its sources."""
    sources = sorted((project / "tests" / "bench" / "blob_sink").iterdir())
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    program = project / ".trainyard" / "bench" / f"blob_sink-{digest[:12]}"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        partial = program.with_suffix(f".{os.getpid()}")
        main = next(path for path in sources if path.suffix == ".cpp")
        subprocess.run(["g++", "-std=c++17", "-O2", "-o", partial, main], check=True)
        partial.rename(program)
    return program


def _port(port_file: Path, process: subprocess.Popen[bytes]) -> int:
    give_up = time.monotonic() + START_TIMEOUT_S
    while not port_file.exists():
        if process.poll() is not None or time.monotonic() > give_up:
            message = f"the sink does not start (exit code {process.poll()})"
            raise RuntimeError(message)
        time.sleep(0.01)
    return int(port_file.read_text())


def _environment(folder: Path, endpoint: str) -> Path:
    path = local_environment(folder)
    environment = json.loads(path.read_text())
    environment["storage"] |= {"account": ACCOUNT, "blob_endpoint": endpoint}
    path.write_text(json.dumps(environment))
    storage = folder / "storage"
    storage.mkdir()
    (storage / "account.key").touch(mode=0o600)
    (storage / "account.key").write_text(KEY)
    return path
