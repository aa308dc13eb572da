"""Tells whose process listens on a port of 127.0.0.1 (Linux), which all users of a machine share."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

LISTEN = "0A"
# As /proc/net has them; 127.0.0.1 first, which is nearer than every address.
ADDRESSES = (
    "0100007F",
    "0000000000000000FFFF00000100007F",
    "00000000",
    "00000000000000000000000000000000",
)


def find_listener(port: int) -> int | None:
    """Find the user id behind a port, as a client would reach it; None where nobody listens."""
    owners: dict[str, int] = {}
    for table in ("tcp", "tcp6"):
        path = Path("/proc/net", table)
        for line in path.read_text(encoding="ascii").splitlines()[1:] if path.exists() else ():
            fields = line.split()
            address, _, number = fields[1].partition(":")
            if fields[3] == LISTEN and int(number, 16) == port:
                owners[address] = int(fields[7])
    return next((owners[address] for address in ADDRESSES if address in owners), None)


def is_ours(port: int) -> bool:
    """Tell whether a process of our own user listens there."""
    return find_listener(port) == os.geteuid()


def name_listener(port: int) -> str:
    """Write ` of user ...`, to go behind a program's name; empty where nobody listens."""
    owner = find_listener(port)
    if owner is None:
        return ""
    try:
        return f" of user `{pwd.getpwuid(owner).pw_name}`"
    except KeyError:
        return f" of user {owner}"
