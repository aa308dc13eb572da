"""Decodes pictures for the process that started it; trainer.data.pictures.decoding_processes does.

    python -m trainer.data.pictures.decoding_worker MODULES SOCKET,MEMORY[,SOCKET,MEMORY...] ...

imports the modules (with commas between) once, and forks a process for each argument behind them: the
file descriptors of its lanes.
"""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait

from trainer.common.errors import TrainingError
from trainer.data.pictures.decoding_parts import Decoded, Request, SharedMemory


def main(argv: Sequence[str]) -> int:
    """Import the modules, fork the processes, and wait for their end."""
    # A notice to all processes of a machine is the rank's to heed: it may still want batches.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    for module in argv[0].split(","):
        importlib.import_module(module)
    shares = [[int(each) for each in argument.split(",")] for argument in argv[1:]]
    for share in shares:
        if os.fork() == 0:
            # A socket that another process holds, too, would not tell the rank of this one's end.
            _close_sockets([other for other in shares if other is not share])
            sockets, memories = share[::2], share[1::2]
            _serve(
                {
                    Connection(socket): SharedMemory(memory)
                    for socket, memory in zip(sockets, memories, strict=True)
                }
            )
            os._exit(0)
    _close_sockets(shares)
    for _ in shares:
        os.wait()
    os._exit(0)  # at once: PyTorch takes a second to be taken apart


def _close_sockets(shares: Sequence[Sequence[int]]) -> None:
    for share in shares:
        for socket in share[::2]:
            os.close(socket)


def _serve(lanes: dict[Connection, SharedMemory]) -> None:
    """Answer requests until all sockets are closed."""
    while lanes:
        for connection in wait([*lanes]):
            assert isinstance(connection, Connection)
            try:
                request = connection.recv_bytes()
                connection.send(_answer(request, lanes[connection]))
            except (EOFError, OSError):
                del lanes[connection]


def _answer(request: bytes, memory: SharedMemory) -> Decoded | Exception:
    try:
        part: Request = pickle.loads(request)  # noqa: S301 - from the process that started this one
        return part.decode(memory)
    except TrainingError as error:
        return error
    except Exception:  # noqa: BLE001 - a mistake of ours, which the training raises
        return RuntimeError(traceback.format_exc())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
