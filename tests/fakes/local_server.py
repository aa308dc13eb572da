"""Has a fake server on this machine pass for the Azurite of a local store's folder."""

from __future__ import annotations

import os
from pathlib import Path

from infra.local import azurite_server
from infra.local.azurite_server import Server
from infra.local.process_identity import identify


def name_server(folder: Path, *, port: int = 1, pid: int | None = None) -> None:
    """Write down that a living process (this one by default) is the folder's server."""
    pid = pid or os.getpid()
    server = Server(
        account="trainyard",
        port=port,
        node="/no/node",
        azurite="/no/azurite",
        containers=("data", "runs"),
        pid=pid,
        identity=identify(pid),
    )
    azurite_server._write_server(folder, server)
