"""Shows how far a transfer is: one moving line on a terminal, a few plain lines in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

from msgspec import Struct
from msgspec.structs import replace

from jobs.host.console import duration_text, is_terminal, say, size_text

TERMINAL_INTERVAL_S = 0.1
LOG_INTERVAL_S = 5.0
# What a command says at Ctrl-C that goes on where it was.
INTERRUPTED = "interrupted: type the same again to go on"


class Transfer(Struct, frozen=True, kw_only=True):
    """How many files and bytes of how many are over; of how many is None until it is known.

    `bytes_found` of those that are over were there from an earlier try.
    """

    files_done: int
    bytes_done: int
    bytes_found: int = 0
    files: int | None = None
    bytes: int | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing is left, as far as that is known."""
        if self.files is not None:
            return self.files_done == self.files
        return self.bytes_done == self.bytes

    @property
    def share(self) -> float | None:
        """How much of it is over, 0 to 1; None where no total is known."""
        if self.bytes is not None:
            return self.bytes_done / self.bytes if self.bytes else 1.0
        if self.files is not None:
            return self.files_done / self.files if self.files else 1.0
        return None


Progress = Callable[[Transfer], None]


def silent(_transfer: Transfer) -> None:
    """Show nothing."""


class Counter:
    """Adds up what a store says was moved, and tells; the totals are known."""

    def __init__(self, files: int, num_bytes: int, progress: Progress) -> None:
        self._state = Transfer(files_done=0, bytes_done=0, files=files, bytes=num_bytes)
        self._progress = progress

    def add(self, files: int, num_bytes: int, num_found: int = 0, /) -> None:
        """So much more is over; see jobs.blobs.store.Moved."""
        self._state = replace(
            self._state,
            files_done=self._state.files_done + files,
            bytes_done=self._state.bytes_done + num_bytes,
            bytes_found=self._state.bytes_found + num_found,
        )
        self._progress(self._state)


class ProgressLine:
    """Writes a transfer's state to stderr; `verb` as in `sending`.

    Its clock starts when it is first told something: what went before is no part of the transfer,
    nor of its rate. `after_s` keeps it silent for so long, for work that is mostly over at once.
    """

    def __init__(self, verb: str, *, stream: TextIO | None = None, after_s: float = 0.0) -> None:
        self._verb = verb
        self._stream = stream or sys.stderr
        self._moves = is_terminal(self._stream)
        self._after_s = after_s
        self._first: Transfer | None = None
        self._began = self._shown = 0.0
        self._is_open = False

    def __call__(self, transfer: Transfer) -> None:
        """Take the state; write it where the last one is old enough, or where it is the last."""
        now = time.monotonic()
        if self._first is None or transfer.bytes_done < self._first.bytes_done:
            self._first, self._began, self._shown = transfer, now, now
        if now - self._began < self._after_s:
            return
        is_over = transfer.is_over
        interval_s = TERMINAL_INTERVAL_S if self._moves else LOG_INTERVAL_S
        if not is_over and now - self._shown < interval_s:
            return
        self._shown = now
        text = self._text(transfer, self._first, now - self._began)
        if self._moves:
            self._stream.write(f"\r\x1b[K{text}" + ("\n" if is_over else ""))
            self._is_open = not is_over
        else:
            self._stream.write(text + "\n")
        self._stream.flush()

    def end(self) -> None:
        """Let what is written next begin on a line of its own, where the work ended before its end."""
        if self._is_open:
            self._stream.write("\n")
            self._stream.flush()
            self._is_open = False

    def _text(self, transfer: Transfer, first: Transfer, elapsed_s: float) -> str:
        done, share = transfer.bytes_done, transfer.share
        of_files = "" if transfer.files is None else f"/{transfer.files}"
        of_bytes = "" if transfer.bytes is None else f" of {size_text(transfer.bytes)}"
        text = f"{self._verb} {transfer.files_done}{of_files} files"
        if done or transfer.bytes is not None:
            text += f", {size_text(done)}{of_bytes}"
        if share is not None:
            text += f" ({share:.0%})"
        moved = (done - transfer.bytes_found) - (first.bytes_done - first.bytes_found)
        if elapsed_s > 0.5 and moved > 0:
            text += f", {size_text(round(moved / elapsed_s))}/s"
            if transfer.bytes is not None and done < transfer.bytes:
                text += f", {duration_text(elapsed_s * (transfer.bytes - done) / moved)} left"
        return text + self._left_by_files(transfer, first, elapsed_s)

    def _left_by_files(self, transfer: Transfer, first: Transfer, elapsed_s: float) -> str:
        """The time left of what is counted in files only."""
        over = transfer.files_done - first.files_done
        if transfer.bytes is not None or transfer.files is None or transfer.is_over:
            return ""
        if elapsed_s <= 0.5 or not over:
            return ""
        left = transfer.files - transfer.files_done
        return f", {duration_text(elapsed_s * left / over)} left"


class ProgressLines:
    """The lines of one command that goes on where it was; as a context it ends them.

    However the command ends, what is said next begins on a line of its own.
    """

    def __init__(self) -> None:
        self._lines: list[ProgressLine] = []

    def open(self, verb: str, *, after_s: float = 0.0) -> ProgressLine:
        """Make one more; see ProgressLine."""
        line = ProgressLine(verb, after_s=after_s)
        self._lines.append(line)
        return line

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        """End the lines; after Ctrl-C say that the command may be typed again."""
        for line in self._lines:
            line.end()
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            say(INTERRUPTED)
