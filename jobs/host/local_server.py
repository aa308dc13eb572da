"""Tells whether the local store's server is ours: its process lives, and the port is our user's."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from msgspec import Struct

from jobs.contracts.errors import EnvironmentFailure
from jobs.host.processes import read_process
from jobs.host.socket_owner import Place, listener_owner, name_user
from jobs.host.structs import prepared

SERVER_FILE = "server.json"  # infra/local/azurite_server.py writes it
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class _Server(Struct, frozen=True):
    """Identity of the server's process: its id, and its boot and start tick."""

    pid: int | None = None
    identity: str | None = None


def is_serving(folder: Path, address: Place) -> bool:
    """Tell whether the store of `folder` listens at its address.

    Raises EnvironmentFailure where another user of this machine does.
    """
    owner = listener_owner(address)
    if owner is None:
        return False
    if owner != os.geteuid():
        host, port = address
        message = (
            f"port {port} of {host}, the local store's, is held by {name_user(owner)}; "
            "nothing was sent there"
        )
        hint = f"`ss -ltnp sport = :{port}` shows the process; set `trainyard:storage.port` to another port"
        raise EnvironmentFailure(message, hint=hint)
    return _is_alive(folder)


def _is_alive(folder: Path) -> bool:
    try:
        server = msgspec.json.decode((folder / SERVER_FILE).read_bytes(), type=prepared(_Server))
    except (OSError, msgspec.MsgspecError):
        return False
    process = None if server.pid is None else read_process(server.pid)
    if process is None or process.state in "ZX":
        return False
    return server.identity == f"{BOOT_ID.read_text(encoding='ascii').strip()}/{process.start}"
