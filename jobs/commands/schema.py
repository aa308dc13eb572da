"""`launch schema`: the JSON Schema of a job file or of an environment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from jobs import console
from jobs.commands import options
from jobs.errors import EnvironmentFailure


def register(app: typer.Typer) -> None:
    """Add the verb to the application."""
    app.command("schema")(schema)


def schema(
    what: Annotated[Literal["job", "environment"], typer.Argument(help="Of what.")] = "job",
    *,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write it there instead of stdout."),
    ] = None,
    json: options.Json = False,
    stack: options.Stack = options.DEFAULT_STACK,
    env: options.EnvFile = None,
) -> None:
    """Print the JSON Schema of a job file.

    Or that of an environment. An editor completes and checks a job file whose first line is
    `# yaml-language-server: $schema=FILE`.
    """
    from jobs.schemas import schema_text

    # The schema is JSON and belongs to no stack; the options are there as on every verb.
    del json, stack, env
    text = schema_text(what)
    if output is None:
        console.out(text.rstrip("\n"))
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        message = f"cannot write `{output}`: {error.strerror}"
        raise EnvironmentFailure(message, hint="--output FILE, in a folder that is there") from None
    console.say(f"wrote {output}")
