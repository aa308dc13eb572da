"""Run a program of `trainer.data` as a process; show its progress, result and next steps."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from jobs.contracts.errors import EnvironmentFailure
from jobs.host import console
from jobs.host.progress import INTERRUPTED, ProgressLine, Transfer
from jobs.host.structs import prepared

Program = Literal["prepare", "pack", "synthesize"]


def run_program(
    program: Program, arguments: Sequence[str], *, failure: str, as_json: bool
) -> dict[str, Any]:
    """Run it to its end and give its last event, `done`; `failure` begins the error's message.

    With `as_json` each event goes to stdout as one line of JSON, the last among them; else its
    progress and notes are shown on stderr. Ctrl-C ends the program gently, a second one at once.
    Raises EnvironmentFailure where the program fails.
    """
    # -P: a folder `trainer` where `launch` was typed must not stand in for ours.
    module = [sys.executable, "-P", "-m", f"trainer.data.{program}"]
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors,
        subprocess.Popen(
            [*module, "--json", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            encoding="utf-8",
            errors="replace",
            # Ctrl-C reaches a terminal's whole group, and the program would hear it twice.
            process_group=0 if os.name == "posix" else None,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            last = _follow(process.stdout, _Json() if as_json else _Lines())
            process.wait()
        except KeyboardInterrupt:
            _stop(process)
            console.say(INTERRUPTED)
            raise
        except BaseException:
            process.kill()
            raise
        errors.seek(0)
        said = errors.read().strip()
    if process.returncode != 0 or last.get("event") != "done":
        raise _failed(failure, said, process.returncode)
    if said:
        console.say(said)
    return last


class _Json:
    """Passes events through."""

    def show(self, line: str, event: dict[str, Any]) -> None:
        del event
        console.out(line)

    def end(self) -> None:
        pass


class _Lines:
    """Shows events to a person."""

    def __init__(self) -> None:
        self._verb = ""
        self._progress: ProgressLine | None = None

    def show(self, line: str, event: dict[str, Any]) -> None:
        del line
        if event["event"] == "note":
            self.end()
            console.say(event["text"])
        elif event["event"] == "progress":
            self._show_progress(msgspec.convert(event, prepared(_Progress)))

    def _show_progress(self, event: _Progress) -> None:
        if self._progress is None or event.verb != self._verb:
            self.end()
            self._verb = event.verb
            self._progress = ProgressLine(event.verb)
        self._progress(
            Transfer(
                files_done=event.files_done,
                bytes_done=event.bytes_done,
                files=event.files,
                bytes=event.bytes,
            )
        )

    def end(self) -> None:
        """End the progress line, so that the next text begins on a new line."""
        if self._progress is not None:
            self._progress.end()


class _Progress(msgspec.Struct, frozen=True, kw_only=True):
    """A progress event of a data program (trainer/data/disk/events.py)."""

    verb: str
    files_done: int
    bytes_done: int
    files: int | None = None
    bytes: int | None = None


def _follow(lines: Iterable[str], shown: _Json | _Lines) -> dict[str, Any]:
    last: dict[str, Any] = {}
    try:
        for line in lines:
            last = msgspec.json.decode(line, type=dict[str, Any])
            shown.show(line.rstrip("\n"), last)
    finally:
        shown.end()
    return last


def _stop(process: subprocess.Popen[str]) -> None:
    if os.name == "posix":
        process.send_signal(signal.SIGINT)
    else:
        process.terminate()
    try:
        # It may have more to say than a pipe holds.
        process.communicate()
    except KeyboardInterrupt:
        process.kill()


def _failed(failure: str, said: str, code: int) -> EnvironmentFailure:
    *before, last = said.splitlines() or [f"exit code {code}"]
    if not last.startswith("error: "):
        if said:
            console.say(said)
        message = f"{failure}: {last}"
        return EnvironmentFailure(message, hint="this is a bug in the program; see its output")
    if before:
        console.say("\n".join(before))
    # The program has one line for both; see trainer.common.errors.
    reason, _, hint = last.removeprefix("error: ").partition(" (hint: ")
    return EnvironmentFailure(
        f"{failure}: {reason}",
        hint=hint.removesuffix(")") or "correct this and type the same again",
    )


def say_made(made: Mapping[str, Any], following: str) -> None:
    """Print a program's message, the folder that it made, and the next steps."""
    console.say(made["text"])
    console.out(made["folder"])
    console.say(following)


def next_steps(folder: Path, name: str | None = None, *, is_packable: bool = False) -> str:
    """Give the commands that pack a folder and send it as a dataset, by default of its name."""
    packing = [_packing(folder)] if is_packable else []
    return console.tree("next", [*packing, _pushing(folder, name or name_of(folder))])


def _packing(folder: Path) -> tuple[str, str]:
    target = folder.with_name(f"{folder.absolute().name}-shards")
    words = ["launch", "data", "pack", str(folder), "--to", str(target)]
    return "pack it", shlex.join(words)


def _pushing(folder: Path, name: str) -> tuple[str, str]:
    return "send it", shlex.join(["launch", "data", "push", str(folder), name])


def name_of(folder: Path) -> str:
    """Name a dataset after its folder."""
    return folder.absolute().name.lower() or "dataset"
