"""Shows how far transfers and builds are: a line that moves on a terminal, plain lines in a log."""

from __future__ import annotations

import os
import re
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from msgspec import Struct
from msgspec.structs import replace

from jobs.contracts.errors import EnvironmentFailure
from jobs.host.cache import failure
from jobs.host.console import duration_text, is_terminal, masked, say, size_text
from jobs.host.private import make_folder

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

TERMINAL_INTERVAL_S = 0.1
LOG_INTERVAL_S = 5.0
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
_BAR_WIDTH = 20
# What a command says at Ctrl-C that goes on where it was.
INTERRUPTED = "interrupted: type the same again to continue"


class Transfer(Struct, frozen=True, kw_only=True):
    """Files and bytes that are over, of how many; a total is None until it is known.

    `bytes_found` of those that are over were there from an earlier try.
    """

    files_done: int
    bytes_done: int
    bytes_found: int = 0
    files: int | None = None
    bytes: int | None = None

    @property
    def is_over(self) -> bool:
        """Tell whether nothing is left, as far as that is known."""
        if self.files is not None:
            return self.files_done == self.files
        return self.bytes_done == self.bytes

    @property
    def share(self) -> float | None:
        """The part that is over, 0 to 1; None while no total is known."""
        if self.bytes is not None:
            return self.bytes_done / self.bytes if self.bytes else 1.0
        if self.files is not None:
            return self.files_done / self.files if self.files else 1.0
        return None


Progress = Callable[[Transfer], None]


def silent(_transfer: Transfer) -> None:
    """Show nothing."""


class Counter:
    """Add up a store's reports of a transfer with known totals, and show them."""

    def __init__(self, files: int, num_bytes: int, progress: Progress) -> None:
        self._state = Transfer(files_done=0, bytes_done=0, files=files, bytes=num_bytes)
        self._progress = progress

    def add(self, files: int, num_bytes: int, num_found: int = 0, /) -> None:
        """Add files and bytes that are over, as `jobs.blobs.store.Moved` is told of them."""
        self._state = replace(
            self._state,
            files_done=self._state.files_done + files,
            bytes_done=self._state.bytes_done + num_bytes,
            bytes_found=self._state.bytes_found + num_found,
        )
        self._progress(self._state)


class _MovingLine:
    """Draws one line of a terminal again and again, by rich; no name in it is markup."""

    def __init__(self, stream: TextIO, *, stays: bool) -> None:
        self._stream, self._stays = stream, stays
        self._live: Live | None = None

    def show(self, text: str, share: float | None = None) -> None:
        """Draw the text instead of what was there, with a bar where a share of 0 to 1 is known."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        live = self._live = self._live or self._begin()
        line = Text.from_ansi(masked(text), no_wrap=True, overflow="ellipsis")
        if share is None or live.console.width < line.cell_len + _BAR_WIDTH + 1:
            live.update(line, refresh=True)
            return
        row = Table.grid(padding=(0, 1, 0, 0))
        row.add_row(ProgressBar(total=1.0, completed=share, width=_BAR_WIDTH), line)
        live.update(row, refresh=True)

    def _begin(self) -> Live:
        from rich.live import Live

        live = Live(
            console=_console(self._stream),
            auto_refresh=False,
            transient=not self._stays,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        live.start()
        live.console.show_cursor()  # a command that is killed leaves no terminal without one
        return live

    def end(self) -> None:
        """End the line, if it was drawn, so that the next text begins on a new one."""
        if self._live is not None:
            self._live.stop()
            self._live = None


def _console(stream: TextIO) -> Console:
    from rich.console import Console

    return Console(file=stream, force_terminal=True, markup=False, highlight=False, emoji=False)


def _moves(stream: TextIO) -> bool:
    return is_terminal(stream) and os.environ.get("TERM") != "dumb"


class ProgressLine:
    """Writes a transfer's state to stderr; `verb` as in `sending`.

    Its clock starts when it is first told something: what went before is no part of the transfer,
    nor of its rate. `after_s` keeps it silent for so long, for work that is mostly over at once.
    """

    def __init__(self, verb: str, *, stream: TextIO | None = None, after_s: float = 0.0) -> None:
        self._verb = verb
        self._stream = stream or sys.stderr
        self._moves = _moves(self._stream)
        self._after_s = after_s
        self._first: Transfer | None = None
        self._began = self._shown = 0.0
        self._line = _MovingLine(self._stream, stays=True)

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
        if not self._moves:
            self._stream.write(text + "\n")
            self._stream.flush()
            return
        self._line.show(text, transfer.share)
        if is_over:
            self.end()

    def end(self) -> None:
        """End the progress line of work that ended early."""
        self._line.end()

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
        """Write the time left of what is counted in files only."""
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


@contextmanager
def step(title: str) -> Generator[None]:
    """Show a step while it runs, then how long it took."""
    began = time.monotonic()
    if _moves(sys.stderr):
        from rich.text import Text

        with _console(sys.stderr).status(Text.from_ansi(masked(title))):
            yield
    else:
        say(f"{title} ...")
        yield
    say(f"{duration_text(time.monotonic() - began):>12}  {title}")


class BuildProgress:
    """Shows the step that a build or a push is at; `first` until it names one."""

    def __init__(self, first: str, *, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._line = _MovingLine(self._stream, stays=False)
        self._began = time.monotonic()
        self._step = first

    def take(self, line: str) -> None:
        """Read a line of the engine's output, and show the step that it begins."""
        step = describe_step(line)
        if step is None or step == self._step:
            return
        self._step = step
        if not self.redraw():
            self._stream.write(self._text() + "\n")
            self._stream.flush()

    def redraw(self) -> bool:
        """Show the step and the time that went by on a terminal; False where there is none."""
        if not _moves(self._stream):
            return False
        self._line.show(self._text())
        return True

    def end(self) -> None:
        """Take the line off the terminal."""
        self._line.end()

    def _text(self) -> str:
        return f"{duration_text(time.monotonic() - self._began):>12}  {self._step}"


def describe_step(line: str) -> str | None:
    """Read from a line of the engine's output which step begins; None for any other line."""
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
    """Copy the process's output into the log until it ends; hand whole lines on."""
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
