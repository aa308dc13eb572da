"""Hosts torch's store beside a gang; run by the runtime's interpreter, not by ours.

    python torch_store.py FD PORT      (FD: a socket that listens on 127.0.0.1:PORT)
    python torch_store.py - PORT       (it opens the socket itself: no descriptor enters a container)

In torch's ordinary start rank 0 listens on every interface, whatever MASTER_ADDR says. With the store
here, and TORCHELASTIC_USE_AGENT_STORE in their environment, the ranks of an unchanged script are all
clients of it. Importing torch takes 3 to 4 s of CPU; ranks that come earlier wait for the store.
"""

from __future__ import annotations

import signal
import socket
import sys
from importlib import import_module


def main() -> None:
    """Serve on the listening socket until the gang ends this process."""
    store = import_module("torch.distributed").TCPStore(
        "127.0.0.1",
        int(sys.argv[2]),
        is_master=True,
        wait_for_workers=False,
        multi_tenant=True,
        master_listen_fd=listen(int(sys.argv[2])) if sys.argv[1] == "-" else int(sys.argv[1]),
    )
    signal.pause()
    del store


def listen(port: int) -> int:
    """Listen on a port that somebody holds for us; gives the descriptor."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(1024)
    return listener.detach()


if __name__ == "__main__":
    main()
