"""A rank that leaves behind processes which hide in every way, then waits for its end.

    daemons.py [WAY ...]       all ways when none is named

Each one's id and start time are written to `hidden` in the run's folder, one line each.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path


def child() -> None:
    """An ordinary child."""


def deaf() -> None:
    """In a session of its own, and deaf to all that can be ignored."""
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def daemon() -> None:
    """Forked twice: its parent is gone, its session is its own."""
    os.setsid()
    if os.fork():
        os._exit(0)


def nameless() -> None:
    """The same, with an empty environment and no folder or file of the run."""
    daemon()
    os.chdir("/")
    os.closerange(0, 256)
    tell()
    os.execve("/bin/sleep", ["sleep", "3600"], {})


def stopped() -> None:
    """Stopped: it acts on nothing but SIGKILL and SIGCONT."""
    daemon()
    tell()
    os.kill(os.getpid(), signal.SIGSTOP)


WAYS = {way.__name__: way for way in (child, deaf, daemon, nameless, stopped)}


def tell() -> None:
    with Path("/proc/self/stat").open(encoding="ascii") as file:
        start = file.read().rpartition(")")[2].split()[19]
    where = Path(os.environ["TRAINYARD_RUN_DIR"], "hidden")
    with where.open("a") as file:
        file.write(f"{os.getpid()} {start}\n")


def main() -> None:
    names = sys.argv[1:] or list(WAYS)
    for name in names:
        if not os.fork():
            WAYS[name]()
            if name not in ("nameless", "stopped"):
                tell()
            time.sleep(3600)
            os._exit(0)
    print("all are hidden")
    time.sleep(3600)


main()
