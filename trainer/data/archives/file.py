"""Reads an archive front to back, once; a thread hashes what was read meanwhile."""

from __future__ import annotations

import hashlib
import queue
import threading
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, Self

from trainer.common.errors import TrainingError

# Hashing lets go of the interpreter's lock: blocks this large leave the other core to the writing.
BLOCK_BYTES = 1 << 20
_NUM_BLOCKS = 8
GET_AGAIN = "get the archive again from where it is published"


class Source(Protocol):
    """Bytes that are read in order; `name` says in messages what they are part of."""

    name: str
    position: int

    def pieces(self, size: int) -> Iterator[memoryview]:
        """Give the next `size` bytes, each piece until the next is asked for.

        Raises TrainingError where the source ends before.
        """
        ...

    def rest(self) -> Iterator[memoryview]:
        """Give everything up to the end."""
        ...


def take(source: Source, size: int) -> bytes:
    """Give the next `size` bytes as one value."""
    return b"".join(source.pieces(size))


def skip(source: Source, size: int) -> None:
    """Read on by `size` bytes and forget them."""
    for _ in source.pieces(size):
        pass


class _InBlocks(ABC):
    """A source that comes in blocks; a piece is a part of one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.position = 0
        self._block = memoryview(b"")
        self._at = 0

    def pieces(self, size: int) -> Iterator[memoryview]:
        """Give the next `size` bytes; see Source."""
        assert size >= 0
        left = size
        while left:
            if self._at == len(self._block) and not self._next_block():
                message = f"`{self.name}` is cut off: {left} bytes are missing at its end at least"
                raise TrainingError(message, hint=GET_AGAIN)
            piece = self._block[self._at : self._at + left]
            self._at += len(piece)
            self.position += len(piece)
            left -= len(piece)
            yield piece

    def rest(self) -> Iterator[memoryview]:
        """Give everything up to the end."""
        while self._at < len(self._block) or self._next_block():
            yield from self.pieces(len(self._block) - self._at)

    @abstractmethod
    def _next_block(self) -> bool:
        """Put the next block in place; False where there is none."""


class ArchiveFile(_InBlocks):
    """An archive on disk. Every byte of it is read and hashed, whatever becomes of it."""

    def __init__(self, path: Path, algorithm: str) -> None:
        super().__init__(path.name)
        try:
            self._file = path.open("rb", buffering=0)
        except OSError as error:
            message = f"`{path}` cannot be read: {error.strerror}"
            raise TrainingError(message, hint=GET_AGAIN) from None
        self._hash = hashlib.new(algorithm, usedforsecurity=False)
        # Filled and hashed in turn: a new block each time costs the kernel more than reading it.
        self._free: queue.SimpleQueue[memoryview] = queue.SimpleQueue()
        for _ in range(_NUM_BLOCKS):
            self._free.put(memoryview(bytearray(BLOCK_BYTES)))
        self._filled: queue.SimpleQueue[tuple[memoryview, int] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._hash_blocks, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._file.close()

    def digest(self) -> str:
        """Read what is left and give the whole file's digest, in hexadecimal."""
        for _ in self.rest():
            pass
        self._stop()
        return self._hash.hexdigest()

    def _next_block(self) -> bool:
        block = self._free.get()
        try:
            size = self._file.readinto(block) or 0
        except OSError as error:
            message = f"`{self.name}` cannot be read: {error.strerror}"
            raise TrainingError(
                message, hint="look at the disk, or get the archive again"
            ) from None
        self._block, self._at = block[:size], 0
        self._filled.put((block, size))
        return size > 0

    def _hash_blocks(self) -> None:
        while filled := self._filled.get():
            block, size = filled
            self._hash.update(block[:size])
            # Whoever reads it has done so when it asks for the next one.
            self._free.put(block)

    def _stop(self) -> None:
        self._filled.put(None)
        self._thread.join()


class Section:
    """The next `size` bytes of a source, as a source that ends there: an archive in an archive."""

    def __init__(self, source: Source, name: str, size: int) -> None:
        self.name = name
        self.position = 0
        self._source = source
        self._size = size

    def pieces(self, size: int) -> Iterator[memoryview]:
        """Give the next `size` bytes; raises TrainingError where the section ends before."""
        if self.position + size > self._size:
            missing = self.position + size - self._size
            message = f"`{self.name}` is cut off: {missing} bytes are missing at its end at least"
            raise TrainingError(message, hint=GET_AGAIN)
        for piece in self._source.pieces(size):
            self.position += len(piece)
            yield piece

    def rest(self) -> Iterator[memoryview]:
        """Give everything up to the section's end."""
        yield from self.pieces(self._size - self.position)


class Inflated(_InBlocks):
    """A gzip file's content as a source of at most `most_bytes`."""

    def __init__(self, source: Source, most_bytes: int) -> None:
        super().__init__(source.name)
        self._packed = source.rest()
        self._most_bytes = most_bytes
        self._inflated = self._inflate()

    def _next_block(self) -> bool:
        self._block, self._at = memoryview(next(self._inflated, b"")), 0
        return bool(self._block)

    def _inflate(self) -> Iterator[bytes]:
        given = 0
        stream = zlib.decompressobj(wbits=31)
        try:
            for piece in self._packed:
                packed: bytes | memoryview = piece
                while True:
                    if stream.eof:
                        stream = zlib.decompressobj(wbits=31)
                    block = stream.decompress(packed, BLOCK_BYTES)
                    packed = stream.unconsumed_tail or stream.unused_data
                    given += len(block)
                    if given > self._most_bytes:
                        message = f"`{self.name}` is refused: it unpacks to over {given} bytes"
                        raise TrainingError(message, hint=GET_AGAIN)
                    if block:
                        yield block
                    # A full block may leave more of it in the stream, but not behind its end.
                    if not packed and (stream.eof or len(block) < BLOCK_BYTES):
                        break
        except zlib.error as error:
            message = f"`{self.name}` is damaged: {error}"
            raise TrainingError(message, hint=GET_AGAIN) from None
        if not stream.eof:
            message = f"`{self.name}` is cut off: its gzip stream has no end"
            raise TrainingError(message, hint=GET_AGAIN)
