"""Opens a gang's rendezvous: Horovod's server, torch's store, or held ports."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

from jobs.engines.local.containers import Containers
from jobs.engines.local.launchers import (
    LOOPBACK,
    GangRequest,
    rendezvous_environment,
    tensorflow_environments,
)
from jobs.engines.local.loopback import preloaded, rank_library
from jobs.host import console

_STORE_FD = 3
_STORE = Path(__file__).with_name("torch_store.py")


class Rendezvous:
    """A gang's rendezvous, on loopback; open from its making until `close`.

    `environment` is what the ranks must have to find it, with `of_rank` what each has for itself.
    `helper` is the process that hosts it, or None where this process does; a gang whose helper
    ends has lost its rendezvous.
    """

    def __init__(
        self,
        request: GangRequest,
        interpreter: str,
        environment: Mapping[str, str],
        containers: Containers | None = None,
    ) -> None:
        self.helper: int | None = None
        self._server = None
        self._held: list[socket.socket] = []
        self._of_rank: dict[int, dict[str, str]] = {}
        # Compiled for this machine's C library, which need not be the image's.
        is_inside = containers is not None
        library = None if is_inside else rank_library(request.launcher, os.environ, console.warn)
        guard = {} if library is None else {"LD_PRELOAD": preloaded(library, environment)}
        port = _free_port()
        if request.launcher == "horovod":
            # Its thread must not start before the process is done forking for other reasons.
            from jobs.engines.local.horovod_store import RendezvousServer

            self._server = RendezvousServer()
        elif request.launcher == "torch" and containers is not None:
            self._held = [_hold_port()]
            port = self._held[0].getsockname()[1]
            argv = [interpreter, "-I", str(_STORE), "-", str(port)]
            self.helper = containers.start("store", argv, environment, files=[_STORE])
        elif request.launcher == "torch":
            with socket.create_server((LOOPBACK, 0), backlog=1024) as listener:
                port = listener.getsockname()[1]
                self.helper = _start_store(listener, interpreter, {**environment, **guard})
        self.environment = {
            "MASTER_ADDR": LOOPBACK,
            "MASTER_PORT": str(port),
            **rendezvous_environment(
                request.launcher, port if self._server is None else self._server.port
            ),
            **guard,
        }
        if request.launcher == "tensorflow":
            self._held = [_hold_port() for _ in request.ranks]
            ports = [each.getsockname()[1] for each in self._held]
            self._of_rank = tensorflow_environments(request.ranks, ports)
            if library is None:
                self.close()  # TensorFlow itself shares its port with nobody

    def of_rank(self, rank: int) -> Mapping[str, str]:
        """Give the variables that only this rank needs to find the others."""
        return self._of_rank.get(rank, {})

    def close(self) -> None:
        """Give the ports back; a helper is the gang's to end."""
        if self._server is not None:
            self._server.close()
        for each in self._held:
            each.close()


def _start_store(listener: socket.socket, interpreter: str, environment: Mapping[str, str]) -> int:
    """Start torch's store on a socket that listens already: ranks that come early just wait."""
    argv = [interpreter, "-I", str(_STORE), str(_STORE_FD), str(listener.getsockname()[1])]
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, listener.fileno(), _STORE_FD),
    ]
    return os.posix_spawn(interpreter, argv, environment, file_actions=actions, setsid=True)


def _free_port() -> int:
    with socket.create_server((LOOPBACK, 0)) as listener:
        return listener.getsockname()[1]


def _hold_port() -> socket.socket:
    """Bind a socket that does not listen: nobody else gets its port, and one rank shares it."""
    held = socket.socket()
    # Before the bind: only sockets that both ask for it may share, and only of one user.
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind((LOOPBACK, 0))
    return held
