"""`launch wait`: blocks until a run is over; its exit code says how it ended."""

from __future__ import annotations

from typing import Annotated

import typer

from jobs import console
from jobs.commands import options
from jobs.errors import LaunchError


def register(app: typer.Typer) -> None:
    """Add the verb to the application."""
    app.command("wait")(wait)


def wait(
    run: options.Run = "last",
    *,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="TIME", help="At most so long: 90s, 10m.")
    ] = None,
    passthrough: Annotated[
        bool, typer.Option("--passthrough", help="End with the job's own exit code.")
    ] = False,
    json: options.Json = False,
    stack: options.Stack = options.DEFAULT_STACK,
    env: options.EnvFile = None,
) -> int:
    """Wait for the end of a run.

    The exit code says how it ended: 0 completed, 100 failed, 101 not finished, 103 cancelled.
    """
    from jobs.follow import wait_until_over
    from jobs.outcome import exit_code, headline
    from jobs.starting import read_error

    timeout_s = _seconds(timeout) if timeout is not None else None
    environment = options.open_environment(stack, env)
    engine, handle = options.open_run(run, environment)
    status = wait_until_over(engine, handle, timeout_s)
    if json:
        console.out_json(status)
    else:
        console.say(headline(status, read_error(environment, handle)))
    return exit_code(status, passthrough=passthrough)


def _seconds(text: str) -> float:
    import msgspec

    from jobs.resolve import duration_s
    from jobs.spec import Duration

    try:
        return float(text) if text.isdigit() else duration_s(msgspec.convert(text, Duration))
    except msgspec.ValidationError:
        message = f"`--timeout {text}` is no length of time"
        raise LaunchError(message, hint="for example 90s, 10m or 2h") from None
