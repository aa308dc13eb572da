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
from trainer.data.pictures.header import CorruptPicture

# With more, threads wait for Python's lock, of which each picture takes 0.2 ms.
MOST_THREADS = 4
# Each takes six file descriptors, of which a process may have 1,024 on most systems.
MOST_PROCESSES = 64
# Pictures of a request: what a lane's memory holds.
MOST_OF_A_REQUEST = 16
END_TIMEOUT_S = 5.0


def decoding_by(
    num_workers: int, modules: Sequence[str], *, num_lanes: int = 2
) -> tuple[Decode, int]:
    """Give what decodes on so many cores, and how many threads should call it at a time.

    It is the threads themselves, or processes where there would be more than MOST_THREADS. These
    import the modules first, which have all that is to be called. A process with one lane waits while
    that is filled and emptied.
    """
    if num_workers <= MOST_THREADS:
        return decode_part, num_workers
    num_processes = min(num_workers, MOST_PROCESSES)
    processes = DecodingProcesses(num_processes, modules, num_lanes=num_lanes)
    return processes.decode, num_lanes * num_processes


class DecodingProcesses:
    """Processes that decode for any number of threads; they end with this object or this process.

    They know nothing of the training: what is to be done comes with each request.
    """

    def __init__(self, num_processes: int, modules: Sequence[str], *, num_lanes: int = 2) -> None:
        """Begin to start them; the modules are imported before they are parted."""
        shares: list[list[_Lane]] = []
        theirs: list[Connection] = []
        descriptors: list[list[int]] = []
        for _ in range(num_processes):
            ends = [Pipe() for _ in range(num_lanes)]
            shares.append([_Lane(ours) for ours, _ in ends])
            theirs.extend(other for _, other in ends)
            sockets = (other.fileno() for _, other in ends)
            memories = (lane.memory.descriptor for lane in shares[-1])
            descriptors.append([*itertools.chain(*zip(sockets, memories, strict=True))])
        self._process = _start(modules, descriptors)
        for each in theirs:
            each.close()
        # All processes' first lanes, then their second ones: so that few requests go to many.
        lanes = [*itertools.chain(*zip(*shares, strict=True))]
        weakref.finalize(self, _end, lanes, self._process)
        self._lanes = queue.SimpleQueue[_Lane]()
        for lane in lanes:
            self._lanes.put(lane)

    def decode(self, put: Put, files: Iterable[Encoded], targets: Pixels) -> Decoded:
        """Decode files as `decode_part` does, in another process; waits for it without Python's lock.

        Raises TrainingError where the process was killed.
        """
        lane = self._lanes.get()
        waiting = iter(files)
        corrupt: dict[int, CorruptPicture] = {}
        core_s = 0.0
        try:
            for start in range(0, len(targets), MOST_OF_A_REQUEST):
                part = targets[start : start + MOST_OF_A_REQUEST]
                began_s = time.thread_time()
                some = [*itertools.islice(waiting, len(part))]
                try:
                    decoded = lane.decode(put, some, part)
                except (EOFError, ConnectionError):
                    raise self._ended(some) from None
                core_s += decoded.core_s + time.thread_time() - began_s
                corrupt |= {start + place: error for place, error in decoded.corrupt.items()}
        finally:
            self._lanes.put(lane)
        return Decoded(corrupt=corrupt, core_s=core_s)

    def _ended(self, files: Sequence[Encoded]) -> TrainingError:
        # The one that forked them outlives them, unless it could not start them.
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(0.5)
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


def _start(modules: Sequence[str], descriptors: Sequence[Sequence[int]]) -> subprocess.Popen[bytes]:
    # As this process finds its modules; each process has one core.
    path = os.pathsep.join(each for each in sys.path if isinstance(each, str))
    return subprocess.Popen(
        [
            *(sys.executable, "-P", "-m", decoding_worker.__name__, ",".join(modules)),
            *(",".join(map(str, share)) for share in descriptors),
        ],
        stdin=subprocess.DEVNULL,
        pass_fds=[*itertools.chain(*descriptors)],
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        # What a rank's group is told is not for them: Ctrl-C, a stop's notice, the abort of a hang.
        process_group=0,
    )


def _end(lanes: Sequence[_Lane], process: subprocess.Popen[bytes]) -> None:
    """Close the sockets, at which the processes end, and wait for them."""
    for lane in lanes:
        lane.connection.close()
        lane.memory.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_TIMEOUT_S)


class _Lane:
    """One of the requests that a process may have."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.memory = SharedMemory()

    def decode(self, put: Put, files: Sequence[Encoded], targets: Pixels) -> Decoded:
        request, pixels = make_request(put, files, targets.shape, self.memory)
        self.connection.send(request)
        answer: Decoded | Exception = self.connection.recv()
        if isinstance(answer, Exception):
            raise answer
        np.copyto(targets, pixels)
        return answer
