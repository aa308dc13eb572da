"""Decodes a part of a batch, and defines the request by which another process does, in shared memory."""

from __future__ import annotations

import itertools
import math
import mmap
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trainer.data.pictures.files import FileRange
from trainer.data.pictures.header import CorruptPicture

Pixels = npt.NDArray[np.uint8]


class Encoded(NamedTuple):
    """A picture's number in its set, its name for messages, and its file or where that lies."""

    number: int
    name: str
    file: FileRange | bytes

    def read(self) -> bytes:
        """Give the file's bytes; raises TrainingError where it cannot be read."""
        return self.file.read(self.name) if isinstance(self.file, FileRange) else self.file


# Reads a file, and writes what is to be seen of it to the array; picklable. Raises CorruptPicture.
Put = Callable[[Pixels, Encoded], None]


@dataclass(frozen=True, kw_only=True)
class Decoded:
    """Corrupt pictures by their place, and the CPU time of decoding."""

    corrupt: dict[int, CorruptPicture]
    cpu_s: float


# As decode_part below.
Decode = Callable[[Put, Iterable[Encoded], Pixels], Decoded]


def decode_part(put: Put, files: Iterable[Encoded], targets: Pixels) -> Decoded:
    """Decode files in this thread, each into its place in `targets` (N x ...)."""
    # The thread's own time: neither that of waiting for a file or a core, nor of other threads.
    began_s = time.thread_time()
    corrupt: dict[int, CorruptPicture] = {}
    for place, file in enumerate(files):
        try:
            put(targets[place], file)
        except CorruptPicture as error:
            corrupt[place] = error
    return Decoded(corrupt=corrupt, cpu_s=time.thread_time() - began_s)


class SharedMemory:
    """Memory that this process shares with another; as large as the largest part so far."""

    def __init__(self, descriptor: int | None = None) -> None:
        self.descriptor = os.memfd_create("pictures") if descriptor is None else descriptor
        self._bytes = np.empty(0, np.uint8)

    def first(self, num_bytes: int) -> Pixels:
        """Give its first bytes."""
        if len(self._bytes) < num_bytes:
            if os.fstat(self.descriptor).st_size < num_bytes:
                os.ftruncate(self.descriptor, 2 * num_bytes)
            self._bytes = np.frombuffer(mmap.mmap(self.descriptor, 0), np.uint8)
        return self._bytes[:num_bytes]

    def close(self) -> None:
        """Give it up."""
        os.close(self.descriptor)
        self._bytes = np.empty(0, np.uint8)


class Request(NamedTuple):
    """A part to decode: in the shared memory its pixels come first, then the bytes of its files.

    `lengths` are those of the files there, 0 for one that the process reads itself.
    """

    put: Put
    shape: tuple[int, ...]
    files: Sequence[Encoded]
    lengths: Sequence[int]

    def views(self, memory: SharedMemory) -> tuple[Pixels, list[Pixels]]:
        """Give pixels and files in the memory; nothing is copied."""
        ends = [*itertools.accumulate([math.prod(self.shape), *self.lengths])]
        used = memory.first(ends[-1])
        files = [used[start:end] for start, end in itertools.pairwise(ends)]
        return used[: ends[0]].reshape(self.shape), files

    def decode(self, memory: SharedMemory) -> Decoded:
        """Decode its files; raises TrainingError for one that cannot be read."""
        pixels, views = self.views(memory)
        files = (
            each if isinstance(each.file, FileRange) else each._replace(file=view.tobytes())
            for each, view in zip(self.files, views, strict=True)
        )
        return decode_part(self.put, files, pixels)


def make_request(
    put: Put, files: Sequence[Encoded], shape: tuple[int, ...], memory: SharedMemory
) -> tuple[Request, Pixels]:
    """Copy the bytes of files to the memory; gives the request and its pixels there."""
    lengths = [len(each.file) if isinstance(each.file, bytes) else 0 for each in files]
    bare = [each._replace(file=b"") if isinstance(each.file, bytes) else each for each in files]
    request = Request(put=put, shape=shape, files=bare, lengths=lengths)
    pixels, views = request.views(memory)
    for each, view in zip(files, views, strict=True):
        if isinstance(each.file, bytes):
            # By NumPy, which lets go of Python's lock meanwhile.
            np.copyto(view, np.frombuffer(each.file, np.uint8))
    return request, pixels
