"""`launch schema`: print the JSON Schema of a job file or an environment."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from jobs.commands import options
from jobs.commands.usage import make_app
from jobs.contracts.errors import EnvironmentFailure
from jobs.host import console


def schema(
    *,
    what: Annotated[
        Literal["job", "environment"],
        typer.Argument(metavar="NAME", help="Schema to print: job or environment."),
    ] = "job",
    output: options.Output = None,
    json: options.Json = False,
) -> None:
    """Print the JSON Schema of a job file or of an environment.

    An editor completes and checks a job file whose first line is
    `# yaml-language-server: $schema=FILE`.
    """
    from jobs.contracts.schemas import schema_text

    del json  # a schema is JSON
    text = schema_text(what)
    if output is None:
        console.out(text.rstrip("\n"))
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        message = f"cannot write `{output}`: {error.strerror}"
        raise EnvironmentFailure(message, hint="--output FILE, in an existing folder") from None
    console.say(f"wrote {output}")


app = make_app({"schema": schema})
