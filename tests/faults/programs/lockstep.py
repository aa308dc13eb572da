"""A gang of stdlib ranks that wait for each other at every step, one of which fails in some way.

    lockstep.py WAY RANK

Rank 0 is the hub: every step the others send it a byte and wait for one back. When a peer goes
away the ranks raise what a collective would raise.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import sys
import time
from pathlib import Path

STEPS_BEFORE = 3


def step(links: list[socket.socket], *, is_hub: bool) -> None:
    if not is_hub:
        links[0].sendall(b".")
    for link in links:
        if not link.recv(1):
            raise ConnectionError("connection closed by peer")
    if is_hub:
        for link in links:
            link.sendall(b".")


def meet(rank: int, size: int) -> list[socket.socket]:
    port = int(os.environ["MASTER_PORT"])
    if rank == 0:
        with socket.create_server(("127.0.0.1", port)) as server:
            return [server.accept()[0] for _ in range(size - 1)]
    while True:
        try:
            return [socket.create_connection(("127.0.0.1", port))]
        except ConnectionRefusedError:
            time.sleep(0.01)


def raise_boom() -> None:
    raise ValueError("boom of the guilty rank")


def eat_memory() -> None:
    _ = [bytearray(1 << 24) for _ in range(1 << 20)]


def eat_memory_within_limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    eat_memory()


def spin() -> None:
    while True:
        pass


def close_output() -> None:
    sys.stdout.flush()
    os.close(1)
    os.close(2)
    time.sleep(3600)


WAYS = {
    "exit 0": lambda: sys.exit(0),
    "exit 1": lambda: sys.exit(1),
    "exit 3": lambda: sys.exit(3),
    "exit 75": lambda: sys.exit(75),
    "exception": raise_boom,
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "SIGTERM": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "SIGSEGV": lambda: ctypes.string_at(0),
    "SIGSTOP": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "memory": eat_memory,
    "memory limit": eat_memory_within_limit,
    "spin": spin,
    "sleep": lambda: time.sleep(3600),
    "close": close_output,
}


def main() -> None:
    way, guilty = sys.argv[1], int(sys.argv[2])
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if way == "memory" and rank == guilty:
        Path(os.environ["MEMORY_GROUP"], "cgroup.procs").write_text(str(os.getpid()))
    links = meet(rank, size)
    for number in range(STEPS_BEFORE):
        step(links, is_hub=rank == 0)
        print(f"rank {rank} did step {number}")
    if rank == guilty:
        Path(os.environ["TRAINYARD_RUN_DIR"], "failed").touch()
        WAYS[way]()
    while True:
        step(links, is_hub=rank == 0)
        time.sleep(0.01)


main()
