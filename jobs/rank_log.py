"""A rank's log: whole lines, each with its time, without the job's secrets."""

from __future__ import annotations

import binascii
import json
import os
import select
import time
from collections import deque

LONGEST_LINE = 1 << 20
TAIL_BYTES = 64 << 10
MARKERS = (b"Traceback (most recent call last):", b"Fatal Python error: ")
CHAINED = (
    b"During handling of the above exception, another exception occurred:",
    b"The above exception was the direct cause of the following exception:",
)


def struck_out(secrets: list[str]) -> list[bytes]:
    """The byte strings that must not reach a log: secrets by line, and their usual disguises."""
    found: set[bytes] = set()
    for secret in secrets:
        for line in (secret, *secret.splitlines()):
            raw = line.strip().encode()
            encoded = binascii.b2a_base64(raw, newline=False).rstrip(b"=")
            url = _url_quoted(raw)
            urls = (url, url.replace(b"%2F", b"/"), url.replace(b"%20", b"+"))
            texts = (json.dumps(line)[1:-1].encode(), repr(line)[1:-1].encode())
            found.update(each for each in (raw, *texts, *urls, encoded) if len(each) >= 4)
    return sorted(found, key=len, reverse=True)


def _url_quoted(raw: bytes) -> bytes:
    return b"".join(
        bytes([b]) if (b < 128 and chr(b).isalnum()) or b in b"-._~" else b"%%%02X" % b for b in raw
    )


def stamp() -> bytes:
    """What a line of a log begins with."""
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{text}.{nanoseconds // 1000:06d}Z ".encode()


class Log:
    """One rank's log: whole lines only, each with the time at which it was read.

    Goes to a file, or without a path to where this process's own output goes.
    """

    def __init__(self, path: str | None, secrets: list[bytes]) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._fd = 1 if path is None else os.open(path, flags, 0o644)
        self._has_file = path is not None
        self._secrets = secrets
        self._rest = b""
        self._tail = b""
        self._tail_end = 0
        self._marks: deque[tuple[int, float]] = deque(maxlen=64)
        self._is_torn = False
        self._num_lost = 0
        self.error: str | None = None

    @property
    def has_rest(self) -> bool:
        """Whether the program wrote the beginning of a line."""
        return bool(self._rest)

    def feed(self, data: bytes) -> None:
        """Take what the program wrote; its last, unfinished line waits for its end."""
        end = data.rfind(b"\n") + 1
        if not end:
            self._rest += data
            if len(self._rest) > LONGEST_LINE:
                self._break_line()
            return
        whole, self._rest = self._rest + data[:end], data[end:]
        self._write(whole)

    def flush(self) -> None:
        """Write the unfinished line as a line of its own."""
        if self._rest:
            rest, self._rest = self._rest, b""
            self._write(rest + b"\n")

    def _break_line(self) -> None:
        """Write a line that is too long to wait for, but for what may begin a secret."""
        rest = self._strike_out(self._rest)
        cut = len(rest) - max(map(len, self._secrets), default=0)
        while cut > 0 and rest[cut : cut + 1] and rest[cut] & 0xC0 == 0x80:  # inside a character
            cut -= 1
        if cut > 0:
            self._rest = rest[cut:]
            self._write(rest[:cut] + b"\n")

    def flush_progress(self) -> None:
        """Write what a progress bar shows now (it ends its updates with a carriage return)."""
        end = self._rest.rfind(b"\r") + 1
        if end:
            shown, self._rest = self._rest[:end].strip(b"\r"), self._rest[end:]
            self._write(shown.rpartition(b"\r")[2] + b"\n")
        elif self._has_file:
            # An unfinished line is a sign of life, too: the gang looks at the file's time.
            os.utime(self._fd)

    def traceback(self) -> tuple[str, float] | None:
        """The traceback that ends the log, chained ones included, and when its first line came."""
        start = self._tail_end - len(self._tail)
        marks = [(offset - start, when) for offset, when in self._marks if offset >= start]
        if not marks:
            return None
        chosen = len(marks) - 1
        while chosen and any(
            c in self._tail[marks[chosen - 1][0] : marks[chosen][0]] for c in CHAINED
        ):
            chosen -= 1
        first, when = marks[chosen]
        return _block(self._tail, first, marks[-1][0]), when

    def last_lines(self, count: int) -> str:
        """The last lines, for a failure that left no traceback."""
        return b"\n".join(self._tail.splitlines()[-count:]).decode(errors="replace")

    def _strike_out(self, text: bytes) -> bytes:
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, b"***")
        return text

    def _write(self, lines: bytes) -> None:
        lines = self._strike_out(lines)
        self._remember(lines)
        prefix = stamp()
        lines = lines.replace(b"\r\n", b"\n")
        # Where the disk was full and is no more, the log goes on with a line of its own.
        gap = b"\n" if self._is_torn else b""
        stamped = gap + prefix + lines[:-1].replace(b"\n", b"\n" + prefix) + b"\n"
        written = 0
        try:
            while written < len(stamped):
                try:
                    written += os.write(self._fd, memoryview(stamped)[written:])
                except BlockingIOError:  # who started us reads it, and is behind
                    select.select([], [self._fd], [])
        except OSError as error:  # a full disk must not end the training by itself
            self._num_lost += len(stamped) - max(written, len(gap))
            self.error = f"log: {error.strerror}, {self._num_lost} bytes lost"
        if written:
            self._is_torn = stamped[written - 1 : written] != b"\n"

    def _remember(self, lines: bytes) -> None:
        for marker in MARKERS:
            at = lines.find(marker)
            while at >= 0:
                begin = lines.rfind(b"\n", 0, at) + 1
                self._marks.append((self._tail_end + begin, time.monotonic()))
                at = lines.find(marker, at + 1)
        self._tail_end += len(lines)
        self._tail = (self._tail + lines)[-TAIL_BYTES:]


def _block(tail: bytes, first: int, last: int) -> str:
    """The traceback from `first` to the exception line of the one that begins at `last`."""
    lines = tail[last:].splitlines()
    marker = next(each for each in MARKERS if each in lines[0])
    prefix = lines[0][: lines[0].index(marker)]  # torch puts "[rank0]: " before each line
    end = len(lines)
    if marker == MARKERS[0]:
        for at, line in enumerate(lines[1:], start=1):
            text = line.removeprefix(prefix)
            if text and not text[:1].isspace():
                end = at + 1
                break
    block = tail[first:last].splitlines() + lines[:end]
    return b"\n".join(line.removeprefix(prefix) for line in block[-400:]).decode(errors="replace")
