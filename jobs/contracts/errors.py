"""The errors a user can meet, and the exit code each one ends with.

LaunchError                 exit  2  usage: what was typed or written is wrong
├── EnvironmentFailure      exit  1  disk, network, Pulumi or Azure failed
│   └── Unreached           exit  1  nobody answered: later somebody may
├── Refused                 exit  3  a guard said no (quota, cost, policy, cluster size)
└── NotFound                exit 102 no such run, dataset or job
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path

# Both need the stack itself. `-s STACK` means: with a stack, where a file will not do.
_FOR_OWNER = r"\bpulumi \w|\blaunch env repair\b"
_STACK_OPTION = r"(\blaunch [^;,`]*?)-s (?!STACK\b)[^\s;,`]+"

# Commands that take a run, where nothing says of which environment.
_RUN_COMMAND = (
    r"\blaunch (?:cancel|exec|fetch|keep|logs|rerun|rm|show|wait)\b(?![^;,`]* (?:-s|--env) )"
)


class ExitCode(IntEnum):
    """Exit codes that `launch` returns to the shell; part of its interface."""

    SUCCEEDED = 0
    ENVIRONMENT = 1
    USAGE = 2
    REFUSED = 3
    FAILED = 100  # failed, preempted or lost
    UNFINISHED = 101
    NOT_FOUND = 102
    CANCELLED = 103
    INTERRUPTED = 130


class LaunchError(Exception):
    """A mistake that the user can correct: names problem, value and the command to type."""

    exit_code = ExitCode.USAGE

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        # What a verb had told as JSON before it ended with this (jobs/calling.py).
        self.value: object = None


class EnvironmentFailure(LaunchError):
    """Something outside failed: the disk, the network, Pulumi, Azure."""

    exit_code = ExitCode.ENVIRONMENT


class Unreached(EnvironmentFailure):
    """An answer is missing or asks for a later try; programs that follow a run retry."""


class Refused(LaunchError):
    """A guard refused before anything was started."""

    exit_code = ExitCode.REFUSED


class NotFound(LaunchError):
    """The run, dataset or job that was named does not exist."""

    exit_code = ExitCode.NOT_FOUND


def hint_for_file(hint: str, file: Path) -> str:
    """Rewrite the commands of a hint that name a stack for who gave `file` as `--env`."""
    if re.search(_FOR_OWNER, hint):
        return f"for the owner of the stack: {hint}; then `launch env export` writes a new {file}"
    given = f"--env {shlex.quote(str(file))}"
    return re.sub(_STACK_OPTION, lambda found: found[1] + given, hint)


def hint_for_words(hint: str, words: Sequence[str]) -> str:
    """Add `words`, as `-s dev`, to the commands of a hint that take a run and name no environment."""
    given = f" {shlex.join(words)}" if words else ""
    return re.sub(_RUN_COMMAND, lambda found: found[0] + given, hint)
