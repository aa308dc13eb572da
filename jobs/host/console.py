"""Write results to stdout, and messages to stderr."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, Protocol, TextIO

from jobs.contracts.errors import EnvironmentFailure, LaunchError

Style = Literal["bold", "dim", "red", "green", "yellow", "blue", "magenta", "cyan"]

# What a shell reports for a program that a closed pipe ended: 128 + SIGPIPE.
READER_GONE = 141

# Words of a table are not shortened to less.
_LEAST_WIDTH = 10

_STYLE_CODE = re.compile(r"\x1b\[[0-9;]*m")
# What a terminal obeys, but colours (their codes are matched whole), tabs and ends of lines.
_CONTROL = re.compile(r"\x1b\[[0-9;:]*m|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_CODES: dict[Style, str] = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}


class Listener(Protocol):
    """Takes what a verb writes, where a program called it (trainyard)."""

    def out(self, text: str) -> None:
        """Take a line of data."""
        ...

    def out_json(self, encoded: bytes) -> None:
        """Take the value that `--json` prints, encoded."""
        ...

    def say(self, text: str, *, is_warning: bool) -> None:
        """Take a message."""
        ...


_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def heard_by(listener: Listener) -> Generator[None]:
    """Let the listener have what is written within, in place of stdout and stderr."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def is_heard() -> bool:
    """Tell whether a program called, whose process and terminal are not ours."""
    return _LISTENER.get() is not None


def out(text: str = "") -> None:
    """Write a line of data to stdout."""
    if listener := _LISTENER.get():
        listener.out(text)
    else:
        _write(sys.stdout, text, "\n")


def say(text: str = "") -> None:
    """Write a message to stderr."""
    if listener := _LISTENER.get():
        listener.say(text, is_warning=False)
    else:
        _write(sys.stderr, text, "\n")


def out_json(value: Any) -> None:
    """Write a value (structs included) as indented JSON to stdout."""
    import msgspec

    encoded = msgspec.json.encode(value, enc_hook=str)
    if listener := _LISTENER.get():
        listener.out_json(encoded)
    else:
        out(msgspec.json.format(encoded, indent=2).decode())


def warn(message: str) -> None:
    """Tell of something that does not stop the command."""
    if listener := _LISTENER.get():
        listener.say(message, is_warning=True)
        return
    say(f"{styled('warning:', 'yellow', 'bold', stream=sys.stderr)} {message}")


def warn_damaged(errors: Sequence[LaunchError]) -> None:
    """Warn in one line of files that cannot be read and are skipped."""
    if errors:
        more = f"; {len(errors) - 1} more cannot be read" if errors[1:] else ""
        warn(f"{errors[0].message}{more}")


def report_error(error: LaunchError) -> None:
    """Write an error the way every command ends with one."""
    if is_heard():
        warn(error.message)
        return
    say(f"{styled('error:', 'red', 'bold', stream=sys.stderr)} {error.message}")
    if error.hint:
        from jobs.host.pulumi_command import as_typed_here

        hint = as_typed_here(error.hint)
        say(f"\n{styled('hint:', 'cyan', 'bold', stream=sys.stderr)} {hint}")


def is_terminal(stream: TextIO) -> bool:
    """Tell whether a person looks at this stream."""
    try:
        return not is_heard() and stream.isatty()
    except ValueError:  # the stream was closed
        return False


def has_colour(stream: TextIO) -> bool:
    """Tell whether to colour: on a terminal, with neither NO_COLOR nor TERM=dumb."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    if os.name == "nt" and not os.environ.get("WT_SESSION"):
        return False  # the old console shows the codes themselves
    return is_terminal(stream)


def styled(text: str, *styles: Style, stream: TextIO | None = None) -> str:
    """Style the text where the stream (stdout) shows colour; give it as it is elsewhere."""
    if not has_colour(stream or sys.stdout):
        return text
    return f"\x1b[{';'.join(_CODES[style] for style in styles)}m{text}\x1b[0m"


def confirm(question: str) -> bool:
    """Ask for a yes, default no; a refusal where nobody can answer."""
    if is_heard():
        message = f"{question} It was not agreed to"
        raise LaunchError(message, hint="yes=True answers every question")
    if not is_terminal(sys.stdin):
        message = f"{question} No terminal is there to answer"
        raise LaunchError(message, hint="add --yes to answer every question with yes")
    _write(sys.stderr, f"{question} [y/N] ", "")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[int] = (),
    gives_way: Sequence[int] = (),
) -> str:
    """Align columns by their widest cell; `right` names the columns of numbers.

    On a terminal that is too narrow, empty columns are left out. Then words are shortened, the
    longest first, but not those of the first column; then the columns `gives_way` are left out,
    one after the other.
    """
    cells = [list(header), *[list(row) for row in rows]]
    columns = list(range(len(header)))
    room = terminal_width()
    if room is not None and _excess(_widths(cells), room) > 0:
        columns = [column for column in columns if any(row[column] for row in rows)]
    shown, is_fit = _fitted(cells, columns, right, room)
    for column in gives_way:
        if is_fit:
            break
        if column in columns:
            columns.remove(column)
            shown, is_fit = _fitted(cells, columns, right, room)
    widths = _widths(shown)
    lines = [
        "  ".join(
            _padded(cell, width, is_right=column in right)
            for cell, width, column in zip(row, widths, columns, strict=True)
        ).rstrip()
        for row in shown
    ]
    return "\n".join([styled(lines[0], "bold"), *lines[1:]])


def terminal_width() -> int | None:
    """Return the columns of the terminal that stdout is; None where it is a file or a pipe."""
    if not is_terminal(sys.stdout):
        return None
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told[:6]) > 0:
        return int(told[:6])
    try:
        # A terminal that does not know its width says 0.
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (OSError, ValueError):
        return None


def shortened(text: str, width: int) -> str:
    """Shorten a text: the end of a sentence, but the middle of a name or a path."""
    if _width(text) <= width:
        return text
    text = _STYLE_CODE.sub("", text)
    if " " in text:
        return f"{text[: width - 3].rstrip()}..."
    end = (width - 3) // 2
    return f"{text[: width - 3 - end]}...{text[len(text) - end :]}"


def fields(pairs: Sequence[tuple[str, str]]) -> str:
    """Write names and values under each other, values aligned."""
    width = max((len(name) for name, _ in pairs), default=0)
    return "\n".join(f"{name.ljust(width)}  {value}".rstrip() for name, value in pairs)


def tree(title: str, branches: Sequence[tuple[str, str]]) -> str:
    """Draw a title and its branches: a label and a command to paste each."""
    width = max((len(label) for label, _ in branches), default=0)
    lines = [title]
    for number, (label, command) in enumerate(branches):
        corner = "└──" if number == len(branches) - 1 else "├──"
        lines.append(f"{corner} {label.ljust(width)}  {command}")
    return "\n".join(lines)


def duration_text(seconds: float) -> str:
    """Write a length of time in its two largest units: 42 s, 3 min 5 s, 2 h 7 min, 3 d 4 h."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit_s, unit, lesser_s, lesser in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= unit_s:
            rest = whole % unit_s // lesser_s
            return f"{whole // unit_s} {unit}" + (f" {rest} {lesser}" if rest else "")
    return f"{whole} s"


def count_text(number: int, thing: str) -> str:
    """Write a number of things: 1 node, 2 nodes."""
    return f"{number} {thing}{'s' if number != 1 else ''}"


def figure_text(value: float) -> str:
    """Write a measured figure in three digits or more: 0.0123, 12.3, 1,580."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def size_text(num_bytes: int) -> str:
    """Write a number of bytes in decimal units: 812 B, 3.4 kB, 1.2 GB."""
    if num_bytes < 1000:
        return f"{num_bytes} B"
    value = float(num_bytes)
    for unit in ("kB", "MB", "GB"):
        value /= 1000
        if value < 999.95:
            return f"{value:.1f} {unit}"
    return f"{value / 1000:.1f} TB"


def _fitted(
    cells: Sequence[Sequence[str]], columns: Sequence[int], right: Sequence[int], room: int | None
) -> tuple[list[list[str]], bool]:
    """Take the columns; shorten words to the room. Tells whether the rows fit then."""
    shown = [[row[column] for column in columns] for row in cells]
    if room is None:
        return shown, True
    widths = _widths(shown)
    too_many = _excess(widths, room)
    least = [max(_LEAST_WIDTH, len(cell)) for cell in shown[0]]
    of_words = [at for at, column in enumerate(columns) if at and column not in right]
    while too_many > 0:
        widest = max(of_words, key=lambda at: widths[at] - least[at], default=0)
        if not widest or widths[widest] <= least[widest]:
            break
        widths[widest] -= 1
        too_many -= 1
    for row in shown:
        for at in of_words:
            row[at] = shortened(row[at], widths[at])
    return shown, too_many <= 0


def _excess(widths: Sequence[int], room: int) -> int:
    return sum(widths) + 2 * (len(widths) - 1) - room


def _widths(cells: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(_width, column)) for column in zip(*cells, strict=True)]


def _width(cell: str) -> int:
    return len(_STYLE_CODE.sub("", cell))


def _padded(cell: str, width: int, *, is_right: bool) -> str:
    padding = " " * (width - _width(cell))
    return padding + cell if is_right else cell + padding


def _write(stream: TextIO, text: str, end: str) -> None:
    # A program's words may be in it, and are not to rename or clear somebody's terminal.
    text = (masked(text) if is_terminal(stream) else text) + end
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        # What is still in the buffer would raise again when the interpreter ends.
        _send_to_nowhere(stream)
        raise SystemExit(READER_GONE) from None
    except UnicodeEncodeError:
        encoding = stream.encoding or "ascii"
        stream.write(text.encode(encoding, "replace").decode(encoding))
        stream.flush()
    except OSError as error:
        _send_to_nowhere(stream)
        message = f"{stream.name} cannot be written: {error.strerror or error}"
        raise EnvironmentFailure(
            message, hint="check its destination; is the disk full?"
        ) from error


def _send_to_nowhere(stream: TextIO) -> None:
    """Discard the rest of the stream's buffer without an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def masked(text: str) -> str:
    """Escape control characters except colours, tabs and line ends."""
    return text if text.isprintable() else _CONTROL.sub(_shown, text)


def _shown(control: re.Match[str]) -> str:
    code = control[0]
    return code if len(code) > 1 else f"\\x{ord(code):02x}"
