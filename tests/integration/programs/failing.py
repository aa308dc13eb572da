"""Ways to fail in the middle of a training; `failing.py` travels with the scripts beside it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path


def raise_boom() -> None:
    raise ValueError("boom of the guilty rank")


WAYS = {
    "exit 1": lambda: sys.exit(1),
    "exception": raise_boom,
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "SIGSTOP": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "sleep": lambda: time.sleep(3600),
}


def sign_of_life() -> None:
    """Importing a framework on a busy machine takes longer than a test wants to wait for a hang."""

    def tell() -> None:
        while not is_loaded.wait(0.5):
            print("loading")

    threading.Thread(target=tell, daemon=True).start()


is_loaded = threading.Event()


def is_guilty(rank: int) -> bool:
    return len(sys.argv) > 2 and int(sys.argv[2]) == rank


def fail() -> None:
    Path(os.environ["TRAINYARD_RUN_DIR"], "failed").touch()
    WAYS[sys.argv[1]]()


def is_held() -> bool:
    """Whether the test wants the training to go on: while the file `hold` is there."""
    return Path(os.environ["TRAINYARD_RUN_DIR"], "hold").exists()
