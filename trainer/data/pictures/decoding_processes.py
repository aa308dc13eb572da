"""Decodes pictures in processes of their own, so that many cores do not wait for one Python lock.

A process has two lanes, each a socket for requests and memory for files and pixels: while one is filled or
emptied, the process decodes for the other.
"""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import time
import weakref
from collections.abc import Iterable, Sequence
from multiprocessing.connection import Connection, Pipe

import numpy as np

from trainer.common.errors import TrainingError
from trainer.data.pictures import decoding_worker
from trainer.data.pictures.decoding_parts import (
    Decode,
    Decoded,
    Encoded,
    Pixels,
    Put,
    SharedMemory,
    decode_part,
    make_request,
)

# With more, threads wait for Python's lock, of which each picture takes 0.2 ms.
MOST_THREADS = 4
END_TIMEOUT_S = 5.0


def decoding_by(num_workers: int, module: str) -> tuple[Decode, int]:
    """Give what decodes on so many cores, and how many threads should call it to keep them busy.

    It is the threads themselves, or processes where there would be more than MOST_THREADS; `module` is
    imported in front of these, and holds what is to be done.
    """
    if num_workers <= MOST_THREADS:
        return decode_part, num_workers
    processes = DecodingProcesses(num_workers, module)
    return processes.decode, processes.num_lanes


class DecodingProcesses:
    """Processes that decode for any number of threads; they end with this object or this process.

    They know nothing of the training: what is to be done comes with each request.
    """

    def __init__(self, num_processes: int, module: str) -> None:
        """Begin to start them; `module` is imported before they are parted."""
        self._lanes = queue.SimpleQueue[_Lane]()
        theirs: list[Connection] = []
        arguments: list[str] = []
        lanes: list[_Lane] = []
        for _ in range(decoding_worker.LANES_PER_PROCESS * num_processes):
            ours, other = Pipe()
            lanes.append(_Lane(ours))
            theirs.append(other)
            arguments.append(f"{other.fileno()},{lanes[-1].memory.descriptor}")
        descriptors = [int(each) for pair in arguments for each in pair.split(",")]
        # As this process finds its modules; each process has one core.
        environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", decoding_worker.__name__, module, *arguments],
            stdin=subprocess.DEVNULL,
            pass_fds=descriptors,
            env=environ,
        )
        for each in theirs:
            each.close()
        weakref.finalize(self, _end, lanes, process)
        for lane in lanes:
            self._lanes.put(lane)

    @property
    def num_lanes(self) -> int:
        """Number of threads that can wait for these processes at once."""
        return self._lanes.qsize()

    def decode(self, put: Put, files: Iterable[Encoded], targets: Pixels) -> Decoded:
        """Decode files as `decode_part` does, in another process; waits for it without Python's lock.

        Raises TrainingError where the process was killed.
        """
        lane = self._lanes.get()
        try:
            return lane.decode(put, files, targets)
        finally:
            self._lanes.put(lane)


def _end(lanes: Sequence[_Lane], process: subprocess.Popen[bytes]) -> None:
    """Close the sockets, at which the processes end, and wait for them."""
    for lane in lanes:
        lane.connection.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_TIMEOUT_S)


class _Lane:
    """One of the requests that a process may have."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.memory = SharedMemory()

    def decode(self, put: Put, files: Iterable[Encoded], targets: Pixels) -> Decoded:
        began_s = time.thread_time()
        request, pixels = make_request(put, files, targets.shape, self.memory)
        try:
            self.connection.send(request)
            told = self.connection.recv()
        except (EOFError, OSError):
            raise _killed(request.files) from None
        if isinstance(told, Exception):
            raise told
        np.copyto(targets, pixels)
        own_s = time.thread_time() - began_s
        return Decoded(corrupt=told.corrupt, core_s=told.core_s + own_s)


def _killed(files: Sequence[Encoded]) -> TrainingError:
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    message = f"a process that decodes pictures was killed; it had `{files[0].name}`{more}"
    hint = "fewer --workers take less memory; if it is always these, one of them ends the decoder"
    return TrainingError(message, hint=hint)
