"""Checks that a connection within this machine came to a server of our own user (Linux).

All users of a machine share its loopback, and a local store that has died leaves its port to whoever
takes it next.
"""

from __future__ import annotations

import os
import socket
import sys
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
    host = host.removeprefix("::ffff:")
    if not ip_address(host).is_loopback or not TABLES[0].exists():
        return
    owners = _listeners(host, port)
    if not owners:
        message = f"no process listens on port {port} of {host} now"
        raise ConnectionError(message)
    if owners != {os.geteuid()}:
        message = f"port {port} of {host}, the store's, is held by another user of this machine"
        raise TrainingError(message, hint=f"`ss -ltnp sport = :{port}` names it")


def _listeners(host: str, port: int) -> set[int]:
    """Give the ids of the users who listen at this address, else of those who listen at any."""
    found: dict[str, set[int]] = {}
    for table in TABLES:
        for line in table.read_text(encoding="ascii").splitlines()[1:] if table.exists() else ():
            fields = line.split()
            address, _, number = fields[1].partition(":")
            if fields[3] == LISTEN and int(number, 16) == port:
                found.setdefault(address, set()).add(int(fields[7]))
    # The kernel gives a connection to the listener of its very address first.
    exact = {_in_table(host), _in_table(f"::ffff:{host}")} if "." in host else {_in_table(host)}
    for addresses in (exact, {_in_table("0.0.0.0"), _in_table("::")}):  # noqa: S104 - asked, not bound
        if owners := set[int]().union(*(found.get(each, ()) for each in addresses)):
            return owners
    return set()


def _in_table(host: str) -> str:
    """Write an address as /proc/net/tcp does: words of 32 bits in this machine's order of bytes."""
    packed = ip_address(host).packed
    words = (packed[start : start + 4] for start in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
