"""Takes what arrives of an answer's body, and no more of it than fits into memory."""

from __future__ import annotations

from collections.abc import Callable

# Of an answer that is kept in memory: the longest is a list of 50,000 blocks, of some megabytes.
LONGEST_BODY = 16 << 20

Sink = Callable[[memoryview], None]


def bounded(into: bytearray, most: int) -> Sink:
    """A sink that keeps what arrives; it raises ValueError for more than `most` bytes."""

    def take(chunk: memoryview) -> None:
        if len(into) + len(chunk) > most:
            message = f"an answer of more than {most} bytes"
            raise ValueError(message)
        into.extend(chunk)

    return take
