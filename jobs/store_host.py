"""Hosts torch's store beside a gang: run by the runtime's interpreter, not by ours.

    python store_host.py FD      (FD: a socket that listens on 127.0.0.1)

torch's ordinary start lets rank 0 listen on every interface, whatever MASTER_ADDR says. With the
store hosted here, and TORCHELASTIC_USE_AGENT_STORE in their environment, an unchanged script's
ranks are all clients of it.
"""

from __future__ import annotations

import signal
import sys
from importlib import import_module
from typing import Any


def main() -> None:
    """Serve until the gang ends this process."""
    distributed: Any = import_module("torch.distributed")  # only the runtime has it
    port = int(sys.argv[2])
    store = distributed.TCPStore(
        "127.0.0.1",
        port,
        world_size=None,
        is_master=True,
        wait_for_workers=False,
        multi_tenant=True,
        master_listen_fd=int(sys.argv[1]),
    )
    signal.pause()
    del store


if __name__ == "__main__":
    main()
