"""Where the ranks of a gang find each other: Horovod's rendezvous, torch's store, or a free port."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

from jobs.launchers import LOOPBACK, meeting_environment
from jobs.spec import Launcher

_STORE_FD = 3


class Meeting:
    """A gang's meeting place, on loopback; open from its making until the supervisor ends.

    `environment` is what the ranks must have to find it. `helper` is the process that hosts it,
    or None where this process does; a gang whose helper ends has lost its meeting place.
    """

    def __init__(
        self, launcher: Launcher, interpreter: str, environment: Mapping[str, str]
    ) -> None:
        self.helper: int | None = None
        port = _free_port()
        meeting_port = port
        if launcher == "horovod":
            # Its thread must not start before the process is done forking for other reasons.
            from jobs.rendezvous import RendezvousServer

            self._server = RendezvousServer()
            meeting_port = self._server.port
        elif launcher == "torch":
            with socket.create_server((LOOPBACK, 0), backlog=1024) as listener:
                port = meeting_port = listener.getsockname()[1]
                self.helper = _start_store(listener, interpreter, environment)
        self.environment = {
            "MASTER_ADDR": LOOPBACK,
            "MASTER_PORT": str(port),
            **meeting_environment(launcher, meeting_port),
        }


def _start_store(listener: socket.socket, interpreter: str, environment: Mapping[str, str]) -> int:
    """Start torch's store on a socket that listens already: ranks that come early just wait."""
    host = str(Path(__file__).with_name("store_host.py"))
    argv = [interpreter, "-I", host, str(_STORE_FD), str(listener.getsockname()[1])]
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, listener.fileno(), _STORE_FD),
    ]
    return os.posix_spawn(interpreter, argv, environment, file_actions=actions, setsid=True)


def _free_port() -> int:
    with socket.create_server((LOOPBACK, 0)) as listener:
        return listener.getsockname()[1]
