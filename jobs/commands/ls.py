"""`launch ls`: the runs, newest first. What is typed plainly is parsed by jobs/cli.py, quicker."""

from __future__ import annotations

from typing import Annotated

import typer

from jobs.commands import options


def register(app: typer.Typer) -> None:
    """Add the verb to the application."""
    app.command("ls")(ls)


def ls(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")] = 20,
    every: Annotated[bool, typer.Option("--all", "-a", help="All of them.")] = False,
    json: options.Json = False,
    stack: options.Stack = options.DEFAULT_STACK,
    env: options.EnvFile = None,
) -> None:
    """List runs, newest first."""
    from jobs.listing import list_runs

    list_runs(stack, env, limit=None if every else limit, as_json=json)
