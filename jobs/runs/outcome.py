"""Word a run's state or end: headline, exit code, attempts, next commands (pure)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise

from msgspec import Struct

from jobs.contracts.errors import ExitCode
from jobs.contracts.spec import RankError, RunState, RunStatus
from jobs.host.console import Style, duration_text, tree
from jobs.runs.failure import AT_EXIT
from jobs.runs.run_folder import RunEvent

EXIT_CODES = {
    RunState.QUEUED: ExitCode.UNFINISHED,
    RunState.PREPARING: ExitCode.UNFINISHED,
    RunState.RUNNING: ExitCode.UNFINISHED,
    RunState.COMPLETED: ExitCode.SUCCEEDED,
    RunState.FAILED: ExitCode.FAILED,
    RunState.PREEMPTED: ExitCode.FAILED,
    RunState.LOST: ExitCode.FAILED,
    RunState.CANCELLED: ExitCode.CANCELLED,
}

COLOURS: dict[RunState, Style] = {
    RunState.QUEUED: "yellow",
    RunState.PREPARING: "yellow",
    RunState.RUNNING: "cyan",
    RunState.COMPLETED: "green",
    RunState.FAILED: "red",
    RunState.PREEMPTED: "magenta",
    RunState.LOST: "red",
    RunState.CANCELLED: "magenta",
}

MISSING_MODULE = re.compile(r"ModuleNotFoundError: No module named '(?P<name>[\w.]+)'")


def exit_code(status: RunStatus, *, passthrough: bool = False) -> int:
    """Give the code that `launch` ends with; with `passthrough` the job's own if it has one."""
    if passthrough and status.state.is_terminal() and status.exit_code is not None:
        # As a shell gives a signal.
        return status.exit_code if status.exit_code >= 0 else 128 - status.exit_code
    return int(EXIT_CODES[status.state])


def headline(status: RunStatus, error: RankError | None) -> str:
    """Give one line: the run, its state, and what went wrong: of a completed one what was lost."""
    text = f"{status.id} {status.state.value}"
    length = run_time_s(status)
    if length is not None:
        text += f" after {duration_text(length)}"
    why = reason(status, error)
    has_more = why and why != status.state.value
    return f"{text}: {why}" if has_more else text


def reason(status: RunStatus, error: RankError | None) -> str:
    """Give a state's reason: for a failure the rank, its host, the cause and its first words."""
    if error is None or status.state in {RunState.COMPLETED, RunState.CANCELLED}:
        return status.reason or ""
    rank = f"rank {error.rank}" if error.rank is not None else "the run"
    return ": ".join([f"{rank} on {error.host}", error.cause, *error.message.splitlines()[:1]])


def explanation(error: RankError | None) -> str:
    """Give the traceback, else the message's further lines, for which the headline has no room."""
    if error is None:
        return ""
    return (error.traceback or error.message.partition("\n")[2]).rstrip()


def advice(error: RankError | None) -> str:
    """Give the remedy for a failure whose remedy is known; empty for every other."""
    if error is None:
        return ""
    if missing := MISSING_MODULE.match(error.message):
        return (
            f"neither the image nor the job's code has `{missing['name']}`; in the job file, "
            "`requirements: FILE` adds packages and `code: FOLDER` adds modules"
        )
    if error.message.endswith(AT_EXIT):
        return (
            "a script that uses torch.distributed ends with "
            "`torch.distributed.destroy_process_group()`"
        )
    return ""


def next_commands(
    status: RunStatus,
    error: RankError | None,
    stack: Sequence[str],
    *,
    checkpoint_step: int | None = None,
    has_preparation: bool = False,
    is_fetched: bool = False,
) -> str:
    """Draw a small tree of commands to paste; `stack` are the words that name the stack.

    `checkpoint_step` is that of the run's newest checkpoint, where it has one. `has_preparation`
    says that there are logs of how its nodes were made ready, `is_fetched` that what it made is
    brought home anyhow.
    """
    branches: list[tuple[str, Sequence[str]]] = []
    if not status.state.is_terminal():
        return commands_while_on(status.id, stack)
    if status.state is RunState.COMPLETED:
        branches = [
            ("figures and curves", ["report", status.id]),
            ("outputs and logs", ["fetch", status.id]),
            ("read the log", ["logs", status.id]),
            ("once more", ["rerun", status.id]),
        ]
    else:
        rank = ["--rank", str(error.rank)] if error is not None and error.rank is not None else []
        branches = [
            ("read the log", ["logs", status.id, *rank]),
            ("what is known", ["show", status.id]),
            ("outputs and logs", ["fetch", status.id]),
        ]
        if error is not None and error.cause == "hang":
            branches.insert(1, ("where all ranks stood", ["stacks", status.id]))
        if has_preparation and status.started is None:
            branches[0] = ("how it was prepared", ["logs", status.id, "--preparation"])
        if checkpoint_step is not None:
            go_on = f"go on from step {checkpoint_step}"
            branches.insert(0, (go_on, ["rerun", status.id, "--resume"]))
        branches.append(("once more", ["rerun", status.id]))
    if is_fetched:
        branches = [each for each in branches if each[1][0] != "fetch"]
    return _commands(branches, stack)


def commands_while_on(run: str, stack: Sequence[str]) -> str:
    """Draw the commands for a run that is not over, without its status."""
    branches = [
        ("follow again", ["logs", "-f", run]),
        ("wait for the end", ["wait", run]),
        ("end it", ["cancel", run]),
    ]
    return _commands(branches, stack)


def _commands(branches: Sequence[tuple[str, Sequence[str]]], stack: Sequence[str]) -> str:
    lines = [(label, shlex.join(["launch", *words, *stack])) for label, words in branches]
    return tree("next:", lines)


def run_time_s(status: RunStatus) -> float | None:
    """Count the seconds from start to end; None for a run that did not start or has not ended."""
    if status.started is None or status.ended is None:
        return None
    return (parse_time(status.ended) - parse_time(status.started)).total_seconds()


def parse_time(text: str) -> datetime:
    """Parse a run's time: ISO 8601 in UTC."""
    return datetime.fromisoformat(text)


class AttemptBrief(Struct, frozen=True, kw_only=True):
    """One start of the run's gang; `ended` and `reason` are None while it runs."""

    name: str
    started: str
    ended: str | None
    state: RunState
    reason: str | None


def attempts_of(run_id: str, events: Sequence[RunEvent]) -> list[AttemptBrief]:
    """List all attempts, oldest first; none for a run whose ranks were never started."""
    found: list[AttemptBrief] = []
    for event, following in pairwise([*events, None]):
        if event is None or event.state is not RunState.RUNNING:
            continue
        # Another attempt follows only one that was preempted; else the run ended with it.
        state = RunState.RUNNING if following is None else following.state
        found.append(
            AttemptBrief(
                name=event.attempt or f"{run_id}.{len(found) + 1}",
                started=event.ts,
                ended=following.ts if following else None,
                state=RunState.PREEMPTED if state is RunState.PREPARING else state,
                reason=following.reason if following else None,
            )
        )
    return found
