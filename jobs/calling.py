"""Calls a verb of `launch` in this process, and gives what it printed as a value."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Generator, Sequence
from typing import Any

from jobs.contracts.errors import ExitCode, LaunchError
from jobs.host import console

_log = logging.getLogger("trainyard")
# Commands whose `--json` prints a value a line.
_LINE_BY_LINE = (("logs",), ("data", "prepare"), ("data", "pack"), ("data", "synthesize"))


class _Heard:
    """What a verb wrote: its value, else its lines; its messages went to the log."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.values: list[Any] = []
        self.warnings: list[str] = []

    def out(self, text: str) -> None:
        self.lines.append(text)

    def out_json(self, encoded: bytes) -> None:
        self.values.append(json.loads(encoded))

    def say(self, text: str, *, is_warning: bool) -> None:
        if is_warning:
            self.warnings.append(text)
        if text.strip():
            _log.log(logging.WARNING if is_warning else logging.INFO, "%s", text)


def call(words: Sequence[str]) -> Any:
    """Call the verb that the words say, as `launch` does.

    Gives the value that `--json` prints where it is among the words, a list where it prints one a
    line, else the text. Raises LaunchError as the verb does, and where it gave nothing but an
    exit code (KeyboardInterrupt for that of an interruption); its hint is a note, which a
    traceback shows, its `value` what was printed before.
    """
    from jobs.cli import call as call_verb

    # What stands behind `--` is the user's own command.
    given = words[: words.index("--")] if "--" in words else words
    is_json, told = "--json" in given, _Heard()
    try:
        with console.heard_by(told), _outside_of_any_loop():
            code = call_verb(list(words))
    except LaunchError as error:
        error.value = next(iter(told.values), None)
        if error.hint:
            error.add_note(f"hint: {error.hint}")
        # What is wrong was given here: frames of the command line say nothing of it.
        raise error.with_traceback(None) from None
    if told.values:
        return told.values[0]
    if code == ExitCode.INTERRUPTED and not told.lines:
        raise KeyboardInterrupt  # the verb heard it, and had nothing to give
    if code != ExitCode.SUCCEEDED and not told.lines:
        what = told.warnings[-1] if told.warnings else f"`{words[0]}` ended with {code}"
        error = LaunchError(what, hint=f"launch {' '.join(words)}")
        error.exit_code = ExitCode(code) if code in list(ExitCode) else ExitCode.ENVIRONMENT
        raise error
    if is_json and any(tuple(words[: len(each)]) == each for each in _LINE_BY_LINE):
        return [json.loads(line) for line in told.lines]
    text = "\n".join(told.lines)
    return json.loads(text) if is_json else text


@contextlib.contextmanager
def heard() -> Generator[None]:
    """Let messages of what is called within go to the log; for what no verb says."""
    with console.heard_by(_Heard()), _outside_of_any_loop():
        yield


@contextlib.contextmanager
def _outside_of_any_loop() -> Generator[None]:
    """Hide the event loop in which a notebook runs its cells: requests have one of their own."""
    # For who implements loops, the documentation of asyncio says: they are exported for that.
    loop = asyncio._get_running_loop()  # noqa: SLF001
    asyncio._set_running_loop(None)  # noqa: SLF001
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)  # noqa: SLF001
