"""Prints one line per phase with its time; a spinner on a terminal, plain lines in a log."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Self, TextIO

CLEAR_LINE = "\r\x1b[K"
RED, DIM, RESET = "\x1b[31m", "\x1b[2m", "\x1b[0m"
FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAME_S = 0.1


class Phase:
    """A phase under way; `note` adds to its line what only its end can tell."""

    def __init__(self, title: str, started: float) -> None:
        self.title = title
        self.started = started
        self.remark = ""

    def note(self, remark: str) -> None:
        self.remark = remark


class Phases:
    """The phases of one program, some of them side by side. Safe to use from several threads."""

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
        self._colour = self._live and not environ.get("NO_COLOR")
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
        took = duration(self._clock() - phase.started)
        text = f"{phase.title}: {phase.remark}" if phase.remark else phase.title
        if failed:
            text = self._painted(RED, f"{text} FAILED")
        with self._lock:
            self._running.remove(phase)
            self._write(f"{self._painted(DIM, f'{took:>12}')}  {text}\n")

    def _painted(self, colour: str, text: str) -> str:
        return f"{colour}{text}{RESET}" if self._colour else text

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
        shown = (f"{phase.title} {duration(now - phase.started)}" for phase in self._running)
        # Longer would wrap, and a wrapped line cannot be cleared.
        return f"{frame} {' · '.join(shown)}"[:78]


def duration(seconds: float) -> str:
    """A time as people say it: `0.3 s`, `2 min 05 s`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s"
