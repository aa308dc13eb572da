"""Answers the requests of trainer.data.pictures.decoding_processes, which starts it.

    python -m trainer.data.pictures.decoding_worker MODULES SOCKET,MEMORY[,SOCKET,MEMORY...] ...

imports the modules (with commas between) once, and forks a process for each argument behind them: the
file descriptors of its lanes.
"""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from typing import NoReturn

from PIL import Image

from trainer.common.errors import TrainingError
from trainer.data.pictures.decoding_parts import Decoded, Request, SharedMemory


def main(argv: Sequence[str]) -> NoReturn:
    """Import the modules, fork the processes, and wait for their end."""
    # A notice to all processes of a machine is the rank's to heed: it may still want batches.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    for module in argv[0].split(","):
        importlib.import_module(module)
    Image.preinit()  # its usual formats, which Pillow imports at the first picture
    shares = [[int(each) for each in argument.split(",")] for argument in argv[1:]]
    gc.freeze()  # a collection would write to the memory of all that is imported, and so copy it
    for share in shares:
        if os.fork() == 0:
            # A socket that another process holds, too, would not tell the rank of this one's end.
            _close([other for other in shares if other is not share])
            _serve(
                {
                    Connection(socket): SharedMemory(memory)
                    for socket, memory in zip(share[::2], share[1::2], strict=True)
                }
            )
    _close(shares)
    for _ in shares:
        os.wait()
    os._exit(0)  # at once: PyTorch's exit takes a second


def _close(shares: Sequence[Sequence[int]]) -> None:
    for share in shares:
        for descriptor in share:
            os.close(descriptor)


def _serve(lanes: dict[Connection, SharedMemory]) -> NoReturn:
    """Answer requests until all sockets are closed; then this process ends."""
    try:
        while lanes:
            for connection in wait([*lanes]):
                assert isinstance(connection, Connection)
                try:
                    request = connection.recv_bytes()
                    connection.send(_answer(request, lanes[connection]))
                except (EOFError, ConnectionError):
                    del lanes[connection]
    except Exception:  # noqa: BLE001 - it may not go on where this process was forked
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _answer(request: bytes, memory: SharedMemory) -> Decoded | Exception:
    try:
        part: Request = pickle.loads(request)  # noqa: S301 - from the process that started this one
        return part.decode(memory)
    except TrainingError as error:
        return error
    except Exception:  # noqa: BLE001 - a mistake of ours, which the training raises
        return RuntimeError(traceback.format_exc())


if __name__ == "__main__":
    main(sys.argv[1:])
