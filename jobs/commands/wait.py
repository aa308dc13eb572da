"""`launch wait`: wait for the end of a run; the exit code says how it ended."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from jobs.commands import options
from jobs.commands.usage import make_app
from jobs.contracts.errors import LaunchError
from jobs.host import console


def wait(
    *,
    run: options.Run = "last",
    timeout: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Give up after this long, e.g. 90s, 10m or 0.5 (seconds)."
        ),
    ] = None,
    passthrough: Annotated[
        bool, typer.Option("--passthrough", help="Exit with the job's own exit code.")
    ] = False,
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> int:
    """Wait for the end of a run.

    The exit code says how it ended: 0 completed, 100 failed, 101 not finished, 103 cancelled.
    """
    from jobs.contracts.spec import RunState
    from jobs.launching.follow import see_through
    from jobs.launching.start import ending_fields
    from jobs.runs.ending import fetch_command
    from jobs.runs.outcome import exit_code, headline

    timeout_s = _seconds(timeout) if timeout is not None else None
    environment = options.open_environment(stack, env)
    engine, handle = options.open_run(run, environment)
    status = see_through(engine, handle, timeout_s)
    if json:
        console.out_json(status)
    else:
        console.say(headline(status, engine.store.error(handle)))
        told = ending_fields(engine, handle, status) if status.state.is_terminal() else []
        if status.state is RunState.COMPLETED:
            told.append(fetch_command(status, options.stack_words(stack, env)))
        if told:
            console.say(console.fields(told))
    return exit_code(status, passthrough=passthrough)


def _seconds(text: str) -> float:
    from jobs.host.units import parse_duration

    try:  # a bare number, as Python writes one, is of seconds; 0 is only to look
        timeout_s = float(text)
    except ValueError:
        timeout_s = parse_duration(text)
    if timeout_s is None or not 0 <= timeout_s < math.inf:
        message = f"invalid duration `--timeout {text}`"
        raise LaunchError(message, hint="for example 90s, 10m or 2h")
    return timeout_s


app = make_app({"wait": wait})
