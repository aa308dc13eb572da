"""Writes a rank's log: whole lines, each with its time, without the job's secrets."""

from __future__ import annotations

import math
import os
import re
import select
import time

from jobs.rank.mask import Mask
from jobs.rank.memory import Memory

LONGEST_LINE = 1 << 20
# How often the log shows what a program draws anew on one line, and that it writes at all.
SHOW_EVERY_S = 1.0
UP = b"\x1b[A"  # one line up, where bars stand below each other
_UP_AND_DOWN = re.compile(rb"((?:\x1b\[A)+)(\n+)")
_AROUND = re.compile(rb"^\x08+|(?:\x08|\x1b\[A)+\Z")
_BLANK = re.compile(rb"(?:[ \t\b]|\x1b\[[0-9;]*[A-Za-z])*")


def stamp() -> bytes:
    """Give the time that a line of a log begins with."""
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{text}.{nanoseconds // 1000:06d}Z ".encode()


class Log:
    """One rank's log: whole lines only, each with the time at which it was read.

    Goes to a file, or without a path to where this process's own output goes. Of a line that is drawn
    anew behind carriage returns, as progress bars are, it has the last state, and about once a second
    the state of then as a line of its own. Whatever a program writes changes the file's time within
    a second or two: the gang takes that for a sign of life.
    """

    def __init__(self, path: str | None, mask: Mask) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._fd = 1 if path is None else os.open(path, flags, 0o644)
        self._has_file = path is not None
        self._mask = mask
        self._memory = Memory()
        self._rest = b""  # the line that has no end yet, and what is shown of it
        self._shown = b""
        self._is_broken = False
        self._fed_s = 0.0
        self._due_s: float | None = None
        self._is_torn = False
        self._num_lost = 0
        self.error: str | None = None

    @property
    def due_ms(self) -> int | None:
        """Milliseconds until `show_progress` is due; None if it is not."""
        if self._due_s is None:
            return None
        return math.ceil(max(self._due_s - time.monotonic(), 0.0) * 1000)

    def feed(self, data: bytes) -> None:
        """Take the program's output; its last, unfinished line waits for its end."""
        text = self._rest + data
        if UP in text:
            text = _UP_AND_DOWN.sub(_net, text)
        end = text.rfind(b"\n") + 1
        self._rest = text[end:]
        if end:
            self._write_whole(text[:end])
        if b"\r" in self._rest and not self._memory.is_in_traceback:
            before, _, now = self._rest.rpartition(b"\r")
            self._rest = _last_state(before) + b"\r" + now
        if len(self._rest) > LONGEST_LINE:
            self._break_line()
        self._fed_s = time.monotonic()
        if not self._rest:
            self._due_s = None
        elif self._due_s is None:
            self._due_s = self._fed_s + SHOW_EVERY_S

    def flush(self) -> None:
        """Write the unfinished line as a line of its own."""
        if self._rest:
            rest, self._rest = self._rest, b""
            self._write_whole(rest + b"\n")

    def show_progress(self) -> None:
        """Write the state of a progress bar if it is due; else touch the file, as a sign of life."""
        now_s = time.monotonic()
        if self._due_s is None or now_s < self._due_s:
            return
        is_quiet = now_s - self._fed_s >= SHOW_EVERY_S
        self._due_s = None if is_quiet else now_s + SHOW_EVERY_S
        state = self._state(is_quiet=is_quiet)
        if state and state != self._shown:
            self._shown = state
            self._write(state + b"\n")
        elif self._has_file:
            os.utime(self._fd)

    def _state(self, *, is_quiet: bool) -> bytes:
        """Give the state that a progress bar shows; nothing for a line without a carriage return."""
        before, is_bar, now = self._rest.rpartition(b"\r")
        if not is_bar:
            return b""
        # What is being written may be half a state, or half a secret.
        text = self._mask.strike_out(now)
        if is_quiet and not _is_blank(text) and not self._mask.may_begin_at_end(text):
            return _AROUND.sub(b"", text)
        return _AROUND.sub(b"", self._mask.strike_out(before))

    def _break_line(self) -> None:
        """Write a line that is too long to wait for, but for what may begin a secret."""
        rest = self._mask.strike_out(self._rest)
        cut = len(rest) - self._mask.longest
        while cut > 0 and rest[cut : cut + 1] and rest[cut] & 0xC0 == 0x80:  # inside a character
            cut -= 1
        if cut > 0:
            self._rest = rest[cut:]
            self._write_whole(rest[:cut] + b"\n")
            self._is_broken = True

    def traceback(self) -> tuple[str, float] | None:
        """Give the traceback that ends the log, chained ones included, and the time of its first line."""
        return self._memory.traceback()

    def last_lines(self, count: int) -> str:
        """Give the last lines, for a failure that left no traceback."""
        return self._memory.last_lines(count)

    def _write_whole(self, lines: bytes) -> None:
        """Write lines that have an end, as a terminal would show them then, and remember them."""
        lines = self._mask.strike_out(lines)
        if b"\r" in lines:
            lines = b"".join(self._draw(line) for line in lines[:-1].split(b"\n"))
        else:
            self._remember(lines)
        if self._shown and lines.startswith(self._shown + b"\n"):
            lines = lines[len(self._shown) + 1 :]
        self._shown = b""
        if lines:
            self._write(lines)

    def _draw(self, line: bytes) -> bytes:
        """Remember and give a line as a terminal shows it, an exception's as its program wrote it."""
        if self._memory.is_in_traceback:
            line = line.rstrip(b"\r").replace(b"\r", b"\\r")
        drawn = _last_state(line) + b"\n"
        self._remember(drawn)
        return drawn

    def _remember(self, lines: bytes) -> None:
        if self._is_broken:  # of a broken line the first piece is enough
            lines = lines[lines.find(b"\n") + 1 :]
        self._is_broken = False
        if lines:
            self._memory.add(lines)

    def _write(self, lines: bytes) -> None:
        prefix = stamp()
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


def _last_state(line: bytes) -> bytes:
    """Give the last text between carriage returns that is not blank."""
    if b"\r" not in line:
        return line
    states = line.split(b"\r")
    shown = next((each for each in reversed(states) if not _is_blank(each)), states[0])
    return _AROUND.sub(b"", shown)


def _net(moves: re.Match[bytes]) -> bytes:
    """Cancel moves up against newlines: what follows draws the line anew."""
    up, down = moves.groups()
    return up[len(UP) * len(down) :] + down[len(up) // len(UP) :]


def _is_blank(text: bytes) -> bool:
    """Tell whether a terminal would show nothing."""
    return _BLANK.fullmatch(text) is not None
