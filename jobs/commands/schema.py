"""`launch schema`: the JSON Schema of a job file or of an environment."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from jobs.commands import options
from jobs.commands.parser import CommandParser
from jobs.contracts.errors import EnvironmentFailure
from jobs.host import console


def configure(parser: CommandParser) -> None:
    """Say what can be typed after it."""
    parser.epilog = (
        "Or that of an environment. An editor completes and checks a job file whose first line "
        "is `# yaml-language-server: $schema=FILE`."
    )
    parser.add_argument(
        "what", choices=("job", "environment"), nargs="?", default="job", help="Of what (job)."
    )
    options.add_output(parser, "Write it there instead of stdout.")
    options.add_json(parser)
    options.add_environment(parser)
    parser.set_defaults(act=schema)


def schema(
    *,
    what: Literal["job", "environment"],
    output: Path | None,
    json: bool,
    stack: str,
    env: Path | None,
) -> None:
    """Print the JSON Schema of a job file."""
    from jobs.contracts.schemas import schema_text

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
