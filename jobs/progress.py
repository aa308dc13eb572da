"""Shows how far a transfer is: one moving line on a terminal, a few plain lines in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

from msgspec import Struct

from jobs.console import duration_text, is_terminal, size_text

TERMINAL_INTERVAL_S = 0.1
LOG_INTERVAL_S = 5.0


class Transfer(Struct, frozen=True, kw_only=True):
    """How many files and bytes of how many are over."""

    files_done: int
    files: int
    bytes_done: int
    bytes: int


Progress = Callable[[Transfer], None]


def silent(_transfer: Transfer) -> None:
    """Show nothing."""


class ProgressLine:
    """Writes a transfer's state to stderr; made for one transfer, `verb` as in `sending`."""

    def __init__(self, verb: str, *, stream: TextIO | None = None) -> None:
        self._verb = verb
        self._stream = stream or sys.stderr
        self._moves = is_terminal(self._stream)
        self._began = time.monotonic()
        self._shown = self._began

    def __call__(self, transfer: Transfer) -> None:
        """Take the state; write it where the last one is old enough, or where it is the last."""
        now = time.monotonic()
        is_over = transfer.files_done == transfer.files
        interval_s = TERMINAL_INTERVAL_S if self._moves else LOG_INTERVAL_S
        if not is_over and now - self._shown < interval_s:
            return
        self._shown = now
        text = self._text(transfer, now - self._began)
        if self._moves:
            self._stream.write(f"\r\x1b[K{text}" + ("\n" if is_over else ""))
        else:
            self._stream.write(text + "\n")
        self._stream.flush()

    def _text(self, transfer: Transfer, elapsed_s: float) -> str:
        share = transfer.bytes_done / transfer.bytes if transfer.bytes else 1.0
        text = (
            f"{self._verb} {transfer.files_done}/{transfer.files} files, "
            f"{size_text(transfer.bytes_done)} of {size_text(transfer.bytes)} ({share:.0%})"
        )
        if elapsed_s > 0.5 and transfer.bytes_done:
            rate = transfer.bytes_done / elapsed_s
            text += f", {size_text(round(rate))}/s"
            if transfer.bytes_done < transfer.bytes:
                left_s = (transfer.bytes - transfer.bytes_done) / rate
                text += f", {duration_text(left_s)} left"
        return text
