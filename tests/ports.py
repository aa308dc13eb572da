"""Gives ports of 127.0.0.1 to what a test starts: the one place that picks a number to hand on.

A port that the kernel picks (bind to 0) and that is closed again belongs to nobody: any connection
of this machine may get it before the server does, since it is of the range for those. These ports
lie below that range. Blocks of them are held by a name that the kernel frees with the process, so
neither another worker of pytest nor another checkout is given the same.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from functools import cache
from pathlib import Path

FIRST = 16384
BLOCK = 64
_held: list[int] = []


def free_port() -> int:
    """A port on which nothing listens, given to nobody else while this process lives."""
    return next(_numbers(os.getpid()))


@cache
def _numbers(process: int) -> Iterator[int]:
    """The ports of one process, whose fork begins anew; a generator."""
    num_blocks = (_end() - FIRST) // BLOCK
    # Each process begins elsewhere: what the last one used may still wait for its last packets.
    for step in range(num_blocks):
        block = (process + step) % num_blocks
        if _hold(block):
            yield from filter(_is_free, range(FIRST + block * BLOCK, FIRST + (block + 1) * BLOCK))
    message = f"no port is left between {FIRST} and {_end()}"
    raise RuntimeError(message)


def _end() -> int:
    """Where the range begins from which the kernel gives ports to connections."""
    text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
    return max(int(text.split()[0]), FIRST + 64 * BLOCK)


def _hold(block: int) -> bool:
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f"\0trainyard-tests-ports-{block}")
    except OSError:
        name.close()
        return False
    _held.append(name.detach())  # open until the process ends, and nobody is warned of it
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
