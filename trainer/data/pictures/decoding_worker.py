"""Decodes pictures for the process that started it; trainer.data.pictures.decoding_processes does.

    python -m trainer.data.pictures.decoding_worker MODULE SOCKET,MEMORY ...

imports MODULE once and forks a process for each two lanes, which are file descriptors.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait

from trainer.common.errors import TrainingError
from trainer.data.pictures.decoding_parts import Decoded, Request, SharedMemory, answer

LANES_PER_PROCESS = 2


def main(argv: Sequence[str]) -> int:
    """Import the module, fork the processes, and wait for their end."""
    # Ctrl-C and the notice of a stop go to a rank's whole group, and the rank decides: it may still want batches.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    module, *arguments = argv
    importlib.import_module(module)
    lanes = [[int(each) for each in argument.split(",")] for argument in arguments]
    shares = [
        lanes[start : start + LANES_PER_PROCESS]
        for start in range(0, len(lanes), LANES_PER_PROCESS)
    ]
    for share in shares:
        if os.fork() == 0:
            # A socket that another process holds, too, would not tell the rank of this one's end.
            for socket, _ in (lane for lane in lanes if lane not in share):
                os.close(socket)
            _serve({Connection(socket): SharedMemory(memory) for socket, memory in share})
            os._exit(0)
    for socket, _ in lanes:
        os.close(socket)
    for _ in shares:
        os.wait()
    return 0


def _serve(lanes: dict[Connection, SharedMemory]) -> None:
    """Answer requests until all sockets are closed."""
    while lanes:
        for connection in wait([*lanes]):
            assert isinstance(connection, Connection)
            try:
                request = connection.recv()
                connection.send(_answer(request, lanes[connection]))
            except (EOFError, OSError):
                del lanes[connection]


def _answer(request: Request, memory: SharedMemory) -> Decoded | Exception:
    try:
        return answer(request, memory)
    except TrainingError as error:
        return error
    except Exception:  # noqa: BLE001 - a mistake of ours, which the training raises
        return RuntimeError(traceback.format_exc())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
