"""Remembers, within bounds, how a rank's log ended: its last lines and its last traceback."""

from __future__ import annotations

import time
from collections import deque

LONGEST = 2000  # bytes of a line that are kept
NUM_LINES = 400  # of one traceback
NUM_LAST_LINES = 50
NUM_BETWEEN = 20  # lines between an exception and the next one of its chain
NUM_CHAINED = 8
LARGEST = 48 << 10  # of all that was chained
# A traceback that so much came after, so long ago, was not the end.
FORGOTTEN_BYTES, FORGOTTEN_S = 64 << 10, 10.0
PYTHON, FATAL = b"Traceback (most recent call last):", b"Fatal Python error: "
CHAINED = (
    b"During handling of the above exception, another exception occurred:",
    b"The above exception was the direct cause of the following exception:",
)


class Memory:
    """Keeps the end of one log, which is fed by whole lines."""

    def __init__(self) -> None:
        self._last: deque[bytes] = deque(maxlen=NUM_LAST_LINES)
        self._chain: deque[_Traceback] = deque(maxlen=NUM_CHAINED)

    @property
    def is_in_traceback(self) -> bool:
        """Tell if the next line belongs to a traceback whose exception is still to come."""
        return bool(self._chain) and self._chain[-1].wants_exception

    def add(self, lines: bytes) -> None:
        """Take lines, each with its end."""
        text = lines[:-1]
        self._last.extend(map(_cut, text.rsplit(b"\n", NUM_LAST_LINES)[-NUM_LAST_LINES:]))
        if self._chain:
            self._chain[-1].num_bytes_after += len(lines)
        is_reading = self._chain and self._chain[-1].wants_more
        if is_reading or any(words in text for words in (PYTHON, FATAL, *CHAINED)):
            for line in text.split(b"\n"):
                self._read(line)

    def traceback(self) -> tuple[str, float] | None:
        """Give the traceback that ends the log, chained ones included, and the time of its first line."""
        if not self._chain:
            return None
        *before, last = self._chain
        is_old = time.monotonic() - last.began_s > FORGOTTEN_S
        if is_old and last.num_bytes_after > FORGOTTEN_BYTES:
            return None
        lines = [line for each in before for line in each.lines + each.between] + last.lines
        text = b"\n".join(lines)
        if len(text) > LARGEST:
            kept = text[-LARGEST:].partition(b"\n")[2]
            text = lines[0] + b"\n  ... (cut)\n" + kept
        return text.decode(errors="replace"), self._chain[0].began_s

    def last_lines(self, count: int) -> str:
        """Give the last lines, for a failure that left no traceback."""
        return b"\n".join(list(self._last)[-count:]).decode(errors="replace")

    def _read(self, line: bytes) -> None:
        marker = next((each for each in (PYTHON, FATAL) if each in line), None)
        if marker is None:
            if self._chain:
                self._chain[-1].add(line)
            return
        if self._chain and not self._chain[-1].leads_on:
            self._chain.clear()
        at = line.index(marker)
        self._chain.append(_Traceback(line[:at], line[at:], is_fatal=marker == FATAL))


class _Traceback:
    """One traceback: its first line, the last ones up to the exception's, and what follows.

    Each line may begin with a prefix: torch puts `[rank0]: ` there.
    """

    def __init__(self, prefix: bytes, first: bytes, *, is_fatal: bool) -> None:
        self.began_s = time.monotonic()
        self.num_bytes_after = 0
        self.between: list[bytes] = []
        self.leads_on = False
        self._prefix = prefix
        self._first = _cut(first)
        self._lines: deque[bytes] = deque(maxlen=NUM_LINES - 1)
        self._is_fatal = is_fatal
        self._is_whole = False

    @property
    def lines(self) -> list[bytes]:
        """The lines from the first one to the exception's."""
        return [self._first, *self._lines]

    @property
    def wants_exception(self) -> bool:
        """Tell if the exception's line is still to come; the kernel's crashes have none."""
        return not self._is_whole and not self._is_fatal

    @property
    def wants_more(self) -> bool:
        """Tell if the next line matters, whatever it says."""
        return not self._is_whole or len(self.between) < NUM_BETWEEN

    def add(self, line: bytes) -> None:
        """Take the next line of the log."""
        text = line.removeprefix(self._prefix)
        if not self._is_whole:
            self._lines.append(_cut(text))
            # What is not indented is the exception; the kernel's of a crash has no such line.
            self._is_whole = bool(text) and not text[:1].isspace() and not self._is_fatal
            return
        is_chained = any(words in text for words in CHAINED)
        self.leads_on = self.leads_on or is_chained
        if is_chained or len(self.between) < NUM_BETWEEN:
            self.between.append(_cut(text))


def _cut(line: bytes) -> bytes:
    if len(line) <= LONGEST:
        return line
    return line[:LONGEST] + b" ... (cut: the line has %d bytes)" % len(line)
