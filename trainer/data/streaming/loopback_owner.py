"""Sees that a connection within this machine came to a server of our own user (Linux).

All users of a machine share its loopback, and a local store that has died leaves its port to whoever
takes it next.
"""

from __future__ import annotations

import os
import socket
from ipaddress import ip_address
from pathlib import Path

from trainer.common.errors import TrainingError

LISTEN = "0A"
TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


def check_own_server(connection: socket.socket) -> None:
    """Raise TrainingError where another user listens; to be called before a byte is sent.

    Raises ConnectionError where nobody listens any more. Says nothing of other machines.
    """
    host, port = connection.getpeername()[:2]
    if not ip_address(host).is_loopback or not TABLES[0].exists():
        return
    owners = _listeners(port)
    if not owners:
        message = f"nobody listens on port {port} of {host} any more"
        raise ConnectionError(message)
    if owners != {os.geteuid()}:
        message = f"port {port} of {host}, the store's, is held by another user of this machine"
        raise TrainingError(message, hint=f"`ss -ltnp sport = :{port}` names it")


def _listeners(port: int) -> set[int]:
    """Ids of the users who listen on this port of any address."""
    found: set[int] = set()
    for table in TABLES:
        for line in table.read_text(encoding="ascii").splitlines()[1:] if table.exists() else ():
            fields = line.split()
            if fields[3] == LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(int(fields[7]))
    return found
