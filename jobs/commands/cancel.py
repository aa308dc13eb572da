"""`launch cancel`: ends runs; one that is over already is left as it is."""

from __future__ import annotations

from typing import Annotated

import typer

from jobs import completion, console
from jobs.commands import options
from jobs.errors import ExitCode

# The supervisor gives the ranks some seconds to end by themselves, then kills them.
TIMEOUT_S = 15.0


def register(app: typer.Typer) -> None:
    """Add the verb to the application."""
    app.command("cancel")(cancel)


def cancel(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...",
            help="Ids, beginnings of ids, or `last`.",
            autocompletion=completion.runs,
        ),
    ],
    stack: options.Stack = options.DEFAULT_STACK,
    env: options.EnvFile = None,
) -> int:
    """End runs.

    Waits until their processes are gone. A run that is over already is left as it is.
    """
    from jobs.follow import wait_until_over

    environment = options.open_environment(stack, env)
    # All names are looked up before the first run is touched.
    found = [options.open_run(run, environment) for run in runs]
    unfinished = 0
    for engine, handle in found:
        before = engine.status(handle)
        engine.cancel(handle)
        if before.state.is_terminal():
            console.say(f"{handle.id} was over already ({before.state.value})")
            continue
        status = wait_until_over(engine, handle, TIMEOUT_S)
        if not status.state.is_terminal():
            unfinished += 1
            console.warn(f"{handle.id} is still {status.state.value}; launch wait {handle.id}")
            continue
        console.say(f"{handle.id} {status.state.value}")
    return int(ExitCode.UNFINISHED if unfinished else ExitCode.SUCCEEDED)
