"""Prints one line per phase with its time; a spinner on a terminal, plain lines in a log."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Self, TextIO

from jobs.host.console import duration_text, styled

CLEAR_LINE = "\r\x1b[K"
FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAME_S = 0.1


class Phase:
    """A phase under way; `note` adds a remark to its line."""

    def __init__(self, title: str, started: float) -> None:
        self.title = title
        self.started = started
        self.remark = ""

    def note(self, remark: str) -> None:
        self.remark = remark


class Phases:
    """The phases of one program, in parallel at times. Safe to use from several threads."""

    def __init__(
        self,
        out: TextIO,
        *,
        environ: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._out = out
        self._clock = clock
        self._live = out.isatty() and environ.get("TERM", "") not in {"", "dumb"}
        self._lock = threading.RLock()
        self._running: list[Phase] = []
        self._closing = threading.Event()
        self._spinner = threading.Thread(target=self._spin, daemon=True)

    def __enter__(self) -> Self:
        if self._live:
            self._spinner.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        if self._live:
            self._spinner.join()

    @contextmanager
    def phase(self, title: str) -> Generator[Phase]:
        """Time what runs inside; its line is printed when it ends, marked when it failed."""
        phase = Phase(title, self._clock())
        with self._lock:
            self._running.append(phase)
        try:
            yield phase
        except BaseException:
            self._finish(phase, failed=True)
            raise
        self._finish(phase, failed=False)

    def say(self, text: str) -> None:
        """Print a line of its own."""
        with self._lock:
            self._write(f"{text}\n")

    def _finish(self, phase: Phase, *, failed: bool) -> None:
        took = duration_text(self._clock() - phase.started)
        text = f"{phase.title}: {phase.remark}" if phase.remark else phase.title
        if failed:
            text = styled(f"{text} FAILED", "red", stream=self._out)
        with self._lock:
            self._running.remove(phase)
            self._write(f"{styled(f'{took:>12}', 'dim', stream=self._out)}  {text}\n")

    def _write(self, text: str) -> None:
        self._out.write(f"{CLEAR_LINE}{text}" if self._live else text)
        self._out.flush()

    def _spin(self) -> None:
        for frame in itertools.cycle(FRAMES):
            if self._closing.wait(FRAME_S):
                break
            with self._lock:
                if self._running:
                    self._write(self._spinner_line(frame))
        with self._lock:
            self._write("")

    def _spinner_line(self, frame: str) -> str:
        now = self._clock()
        shown = (f"{phase.title} {duration_text(now - phase.started)}" for phase in self._running)
        # Longer would wrap, and a wrapped line cannot be cleared.
        return f"{frame} {' · '.join(shown)}"[:78]
