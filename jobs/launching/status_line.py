"""Show how far a followed run is: a line below its output on a terminal, plain lines in a log."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import RunHandle, RunStatus
from jobs.engines.base import Attended, Engine
from jobs.host.console import is_terminal, masked, say, shortened, styled

if TYPE_CHECKING:
    from jobs.contracts.spec import Environment

TERMINAL_EVERY_S, LOG_EVERY_S = 2.0, 60.0
# Nodes of a cloud tell of their progress no more often.
CLOUD_EVERY_S = 10.0
_CLEAR = "\r\x1b[K"
_USUAL_WIDTH = 80


class StatusLine:
    """Asks `look` for a text now and then, and shows it on stderr; as a context it ends that.

    On a terminal the cursor stays at the line's beginning, so that whoever writes next writes over
    it. An empty text is not shown, nor one that was shown before in a log.
    """

    def __init__(
        self, look: Callable[[], str], *, every_s: float, stream: TextIO | None = None
    ) -> None:
        self._look = look
        self._stream = stream or sys.stderr
        self._moves = is_terminal(self._stream) and os.environ.get("TERM") != "dumb"
        self._every_s = every_s if self._moves else LOG_EVERY_S
        self._text = ""
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        # It may wait for a network when the command ends.
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        """Begin to look."""
        self._thread.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        """Take the line off the terminal."""
        self._is_over.set()
        with self._lock:
            self._erase()

    @contextmanager
    def hidden(self) -> Generator[None]:
        """Take the line off the terminal while something else is written."""
        with self._lock:
            self._erase()
            yield
            self._draw()

    def update(self) -> None:
        """Look, and show what is new."""
        try:
            text = self._look()
        except LaunchError:
            return  # the next look may reach the store
        with self._lock:
            if self._is_over.is_set() or text == self._text:
                return
            self._text = text
            if self._moves:
                self._draw()
            elif text:
                say(text)

    def _run(self) -> None:
        while not self._is_over.wait(self._every_s):
            self.update()

    def _draw(self) -> None:
        if self._moves and self._text:
            line = styled(shortened(masked(self._text), _width(self._stream) - 1), "dim")
            self._write(f"{_CLEAR}{line}\r")

    def _erase(self) -> None:
        if self._moves and self._text:
            self._write(_CLEAR)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def status_line(engine: Engine, handle: RunHandle, status: RunStatus) -> StatusLine:
    """Make the line of a run that has started."""
    every_s = CLOUD_EVERY_S if isinstance(engine, Attended) else TERMINAL_EVERY_S
    priced: list[Environment] = []

    def look() -> str:
        from jobs.launching.ahead import ahead_text, look_ahead
        from jobs.runs.outcome import attempts_of
        from jobs.stacks.prices import with_list_prices

        store = engine.store
        progress = store.progress(handle)
        if progress is None:
            return ""
        if not priced:
            priced.append(with_list_prices(engine.environment))
        attempts = attempts_of(handle.id, store.events(handle))
        return f"{handle.id} {ahead_text(look_ahead(status, progress, priced[0], attempts))}"

    return StatusLine(look, every_s=every_s)


def _width(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or _USUAL_WIDTH
    except (OSError, ValueError):
        return _USUAL_WIDTH
