"""Which addresses some processes listen on, by the inodes of their sockets (Linux)."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

LISTEN = "0A"
LOOPBACK = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}


class Listener(NamedTuple):
    """One listening socket: whose it is, where, and whether only this machine can reach it."""

    program: str
    port: int
    is_loopback: bool


def listeners(pids: Collection[int]) -> list[Listener]:
    """Every TCP socket that one of the processes listens on."""
    owners: dict[str, str] = {}
    for pid in pids:
        program = Path(f"/proc/{pid}/comm").read_text().strip()
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                aim = str(entry.readlink())
            except FileNotFoundError:
                continue
            if aim.startswith("socket:["):
                owners[aim[8:-1]] = program
    found: list[Listener] = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            address, _, port = words[1].rpartition(":")
            if words[3] == LISTEN and words[9] in owners:
                found.append(Listener(owners[words[9]], int(port, 16), address in LOOPBACK))
    return found
