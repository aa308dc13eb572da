"""Runs a container engine and shows its steps: one moving line on a terminal, a line each in a log."""

from __future__ import annotations

import re
import selectors
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from jobs.contracts.errors import EnvironmentFailure
from jobs.host.cache import failure
from jobs.host.console import duration_text, is_terminal
from jobs.host.private import make_folder

REDRAW_S = 1.0
MAX_WIDTH = 100
# buildah and podman: `[1/2] STEP 6/12: COPY a b`; docker: `#9 [builder 3/8] RUN make`.
STEPS = (
    re.compile(r"^(?:\[(?P<stage>\d+/\d+)\] )?STEP (?P<step>\d+/\d+): (?P<what>.+)"),
    re.compile(r"^#\d+ \[(?P<stage>[\w-]+) +(?P<step>\d+/\d+)\] (?P<what>.+)"),
)
# What a push says of a part, by buildah and podman, and by docker.
PARTS = (
    re.compile(r"^(Copying (?:blob|config) sha256:[0-9a-f]{12})"),
    re.compile(r"^([0-9a-f]{12}: (?:Pushed|Layer already exists))"),
)
MOUNTS = re.compile(r"--mount=\S+\s*")


class BuildProgress:
    """Shows the step that a build or a push is at; `first` until it names one."""

    def __init__(self, first: str, *, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._moves = is_terminal(self._stream)
        self._began = time.monotonic()
        self._step = first

    def take(self, line: str) -> None:
        """A line of the engine's output."""
        step = describe_step(line)
        if step is None or step == self._step:
            return
        self._step = step
        if self._moves:
            self.redraw()
        else:
            self._stream.write(f"{self._elapsed():>12}  {step}\n")
            self._stream.flush()

    def redraw(self) -> None:
        """Show the time that went by, on a terminal."""
        if self._moves:
            self._stream.write(f"\r\x1b[K{self._elapsed():>12}  {self._step}")
            self._stream.flush()

    def end(self) -> None:
        """Leave the terminal's line."""
        if self._moves:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _elapsed(self) -> str:
        return duration_text(time.monotonic() - self._began)


def describe_step(line: str) -> str | None:
    """What a line of the engine's output says is being done; None for any other line."""
    part = next(filter(None, (pattern.match(line) for pattern in PARTS)), None)
    if part is not None:
        return part[1]
    match = next(filter(None, (pattern.match(line) for pattern in STEPS)), None)
    if match is None:
        return None
    stage = f"stage {match['stage']}, " if match["stage"] else ""
    what = " ".join(MOUNTS.sub("", match["what"]).split())
    text = f"{stage}step {match['step']}: {what}"
    return text if len(text) <= MAX_WIDTH else f"{text[: MAX_WIDTH - 3]}..."


def run_watched(
    command: Sequence[str],
    *,
    what: str,
    log: Path,
    progress: BuildProgress,
    hint: str | None = None,
) -> None:
    """Run a command with its output in `log`, showing its steps.

    Raises EnvironmentFailure with the log's last lines when it fails. When this process is
    interrupted the command is ended, too.
    """
    make_folder(log.parent)
    with log.open("ab") as output:
        output.write(f"+ {' '.join(command)}\n".encode())
        output.flush()
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
        except OSError as error:
            message = f"{what}: cannot start {command[0]}: {error.strerror}"
            raise EnvironmentFailure(message, hint=hint) from error
        with process:
            try:
                _follow(process, output.fileno(), progress)
            except BaseException:
                process.terminate()
                raise
            finally:
                progress.end()
    if process.returncode:
        raise failure(what, process.returncode, log, hint=hint)


def _follow(process: subprocess.Popen[bytes], log: int, progress: BuildProgress) -> None:
    """Copy what the process says into the log until it ends; hand whole lines on."""
    import os

    assert process.stdout is not None, "started with a pipe"
    source, unfinished = process.stdout.fileno(), b""
    with selectors.DefaultSelector() as selector:
        selector.register(source, selectors.EVENT_READ)
        while True:
            if not selector.select(REDRAW_S):
                progress.redraw()
                continue
            block = os.read(source, 1 << 16)
            if not block:
                return
            os.write(log, block)
            *lines, unfinished = (unfinished + block).split(b"\n")
            for line in lines:
                progress.take(line.decode(errors="replace").rstrip())
