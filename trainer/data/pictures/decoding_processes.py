"""Decodes pictures in processes of their own, so that many cores do not wait for one Python lock.

A process has one or two lanes, each a socket for requests and memory for files and pixels. Of two, the
process decodes for one while the other is filled or emptied.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import subprocess
import sys
import time
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Pipe

import numpy as np

from trainer.common.errors import TrainingError
from trainer.data.pictures import decoding_worker, put_crop
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
from trainer.data.pictures.header import CorruptPicture

# With more, threads wait for Python's lock, of which each picture takes 0.2 ms.
MOST_THREADS = 4
# Each takes six file descriptors, of which a process may have 1,024 on most systems.
MOST_PROCESSES = 64
# Pictures of a request: what a lane's memory holds.
MOST_OF_A_REQUEST = 16
END_TIMEOUT_S = 5.0
# Of each library that has threads; none may have any before a fork.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """Hold the function that decodes, and how many threads may call it at a time to keep its cores busy."""

    decode: Decode
    num_threads: int


def decoding_by(num_workers: int, modules: Sequence[str], *, num_lanes: int = 2) -> Decoding:
    """Decode in the calling threads, or in processes for more than MOST_THREADS workers.

    Processes first import the modules, which have all that is to be called. A process with one lane waits
    while that is filled and emptied.
    """
    if num_workers <= MOST_THREADS or not hasattr(os, "memfd_create"):
        return Decoding(decode=decode_part, num_threads=num_workers)
    number = min(num_workers, MOST_PROCESSES)
    processes = DecodingProcesses(number, [put_crop.__name__, *modules], num_lanes=num_lanes)
    return Decoding(decode=processes.decode, num_threads=num_lanes * number)


class DecodingProcesses:
    """Processes that decode for any number of threads; they end with this object or this process.

    They know nothing of the training: what is to be done comes with each request.
    """

    def __init__(self, num_processes: int, modules: Sequence[str], *, num_lanes: int = 2) -> None:
        """Begin to start them; the modules are imported before the processes are forked."""
        shares = [[_Lane() for _ in range(num_lanes)] for _ in range(num_processes)]
        self._process = _start(modules, shares)
        # All processes' first lanes, then their second ones: so that few requests go to many.
        lanes = [*itertools.chain(*zip(*shares, strict=True))]
        self.end = weakref.finalize(self, _end, lanes, self._process)
        self._lanes = queue.SimpleQueue[_Lane]()
        for lane in lanes:
            self._lanes.put(lane)

    def decode(self, put: Put, files: Iterable[Encoded], targets: Pixels) -> Decoded:
        """Decode files as `decode_part` does, in another process; waits for it without Python's lock.

        Raises TrainingError for a file that cannot be read and where the process was killed, and
        RuntimeError with the traceback of any other error.
        """
        lane = self._lanes.get()
        waiting = iter(files)
        corrupt: dict[int, CorruptPicture] = {}
        cpu_s = 0.0
        try:
            for start in range(0, len(targets), MOST_OF_A_REQUEST):
                part = targets[start : start + MOST_OF_A_REQUEST]
                began_s = time.thread_time()
                some = [*itertools.islice(waiting, len(part))]
                try:
                    decoded = lane.decode(put, some, part)
                except (EOFError, ConnectionError):
                    raise self._ended(some) from None
                cpu_s += decoded.cpu_s + time.thread_time() - began_s
                corrupt |= {start + place: error for place, error in decoded.corrupt.items()}
        finally:
            self._lanes.put(lane)
        return Decoded(corrupt=corrupt, cpu_s=cpu_s)

    def _ended(self, files: Sequence[Encoded]) -> TrainingError:
        # The process that forked them outlives them, unless it could not start them.
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(0.5)
            if code > 0:
                message = f"the processes that decode pictures ended with exit code {code}"
                return TrainingError(message, hint="their error stands above")
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        message = (
            f"a process that decodes pictures was killed; it had `{files[0].name}`{more} to do"
        )
        hint = (
            "fewer --workers take less memory; if it is always these, one of them ends the decoder"
        )
        return TrainingError(message, hint=hint)


def _start(modules: Sequence[str], shares: Sequence[Sequence[_Lane]]) -> subprocess.Popen[bytes]:
    # As this process finds its modules.
    path = os.pathsep.join(each for each in sys.path if isinstance(each, str))
    descriptors = [[*itertools.chain(*(lane.descriptors for lane in share))] for share in shares]
    process = subprocess.Popen(
        [
            *(sys.executable, "-P", "-m", decoding_worker.__name__, ",".join(modules)),
            *(",".join(map(str, share)) for share in descriptors),
        ],
        stdin=subprocess.DEVNULL,
        pass_fds=[*itertools.chain(*descriptors)],
        env=os.environ | {"PYTHONPATH": path} | ONE_THREAD,
        # What a rank's group is told is not for them: Ctrl-C, a stop's notice, the abort of a hang.
        process_group=0,
    )
    for lane in itertools.chain(*shares):
        lane.theirs.close()
    return process


def _end(lanes: Sequence[_Lane], process: subprocess.Popen[bytes]) -> None:
    """Close the sockets, at which the processes end, and wait for them."""
    for lane in lanes:
        lane.connection.close()
        lane.memory.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_TIMEOUT_S)


class _Lane:
    """One of the requests that a process may have."""

    def __init__(self) -> None:
        self.connection, self.theirs = Pipe()
        self.memory = SharedMemory()
        self.descriptors = self.theirs.fileno(), self.memory.descriptor

    def decode(self, put: Put, files: Sequence[Encoded], targets: Pixels) -> Decoded:
        request, pixels = make_request(put, files, targets.shape, self.memory)
        self.connection.send(request)
        answer: Decoded | Exception = self.connection.recv()
        if isinstance(answer, Exception):
            raise answer
        np.copyto(targets, pixels)
        return answer
