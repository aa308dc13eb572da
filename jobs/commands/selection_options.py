"""Define the options of `launch ls` that choose runs, and turn them into a Selection."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.commands import completers
from jobs.contracts.errors import LaunchError

if TYPE_CHECKING:
    from jobs.contracts.spec import RunState
    from jobs.runs.selection import Selection

JobName = Annotated[
    str | None,
    typer.Option(
        "--name",
        metavar="PATTERN",
        help="List runs of jobs with this name; `*` stands for any characters.",
        autocompletion=completers.run_names,
    ),
]
Experiment = Annotated[
    str | None,
    typer.Option(
        "--experiment",
        metavar="PATTERN",
        help="List runs of this experiment (default: the job's name).",
        autocompletion=completers.experiments,
    ),
]
Tags = Annotated[
    list[str] | None,
    typer.Option(
        "--tag",
        metavar="KEY[=VALUE]",
        help="List runs with this tag. May be repeated: all have to match.",
    ),
]
States = Annotated[
    list[str] | None,
    typer.Option(
        "--state",
        metavar="STATE",
        help="List runs in this state, e.g. running. May be repeated: one has to match.",
        autocompletion=completers.states,
    ),
]
Since = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="List runs created since then: 2h, 3d or 2026-11-21."),
]


def read_selection(
    name: str | None,
    experiment: str | None,
    tags: Sequence[str] | None,
    states: Sequence[str] | None,
    since: str | None,
) -> Selection:
    """Parse what the options were given; raises LaunchError for no state and no time."""
    from jobs.runs.logs import since_time
    from jobs.runs.selection import Selection

    return Selection(
        name=name,
        experiment=experiment,
        tags=tuple(_tag(each) for each in tags or ()),
        states=frozenset(_state(each) for each in states or ()),
        since=None if since is None else since_time(since, time.time()),
    )


def _tag(text: str) -> tuple[str, str | None]:
    key, equals, value = text.partition("=")
    return key, value if equals else None


def _state(text: str) -> RunState:
    from jobs.contracts.spec import RunState

    try:
        return RunState(text)
    except ValueError:
        message = f"`--state {text[:60]}`: no run has this state"
        raise LaunchError(message, hint=f"one of {', '.join(RunState)}") from None
