"""Prints a data program's progress: JSON lines for a program that started it, else plain ones."""

from __future__ import annotations

import json
import time
from typing import Literal

Event = Literal["progress", "note", "done"]

# A program's reader draws at most so often; in a log a line now and then is enough.
JSON_INTERVAL_S = 0.2
LOG_INTERVAL_S = 5.0


class Events:
    """Prints events to stdout, each with a sentence and its figures.

    `progress` carries files_done, files, bytes_done and bytes (a total that is not known is left
    out), `note` says something on the way, `done` is the last and says what there is now.
    """

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._interval_s = JSON_INTERVAL_S if as_json else LOG_INTERVAL_S
        self._told = time.monotonic()
        # What goes on, since when, and how many bytes were done by then.
        self._begun = ("", self._told, 0)

    def progress(
        self,
        verb: str,
        *,
        files_done: int,
        bytes_done: int,
        files: int | None = None,
        bytes_total: int | None = None,
    ) -> None:
        """Print the progress, `verb` as in `extracting`, unless that was done a moment ago."""
        now = time.monotonic()
        if verb != self._begun[0]:
            self._begun = (verb, now, bytes_done)
        is_over = files_done == files if files is not None else bytes_done == bytes_total
        if not is_over and now - self._told < self._interval_s:
            return
        self._told = now
        of_files = f" of {files}" if files is not None else ""
        share = f" ({bytes_done / bytes_total:.0%})" if bytes_total else ""
        text = f"{verb}: {files_done}{of_files} files, {bytes_done / 1e6:.1f} MB{share}"
        text += self._rate_text(now, bytes_done, bytes_total)
        figures = {"verb": verb, "files_done": files_done, "bytes_done": bytes_done}
        if files is not None:
            figures["files"] = files
        if bytes_total is not None:
            figures["bytes"] = bytes_total
        self.tell("progress", text, **figures)

    def _rate_text(self, now: float, bytes_done: int, bytes_total: int | None) -> str:
        """Format the rate and the time left at that rate."""
        _, begun, bytes_before = self._begun
        # What was there already says nothing about the rate; nor do the first moments.
        if now - begun < 1 or bytes_done <= bytes_before:
            return ""
        rate = (bytes_done - bytes_before) / (now - begun)
        text = f", {rate / 1e6:.1f} MB/s"
        if bytes_total is None or bytes_total <= bytes_done:
            return text
        minutes, seconds = divmod(round((bytes_total - bytes_done) / rate), 60)
        return f"{text}, {minutes}:{seconds:02} left"

    def tell(self, event: Event, text: str, **figures: object) -> None:
        """Print one event at once."""
        line = json.dumps({"event": event, "text": text, **figures}) if self._as_json else text
        print(line, flush=True)
