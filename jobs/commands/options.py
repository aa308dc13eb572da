"""The options that verbs share, and what they stand for: an environment, an engine, a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs import completion

if TYPE_CHECKING:
    from jobs.engines.base import Engine
    from jobs.spec import Environment

Stack = Annotated[
    str,
    typer.Option(
        "-s",
        "--stack",
        metavar="NAME",
        envvar="TRAINYARD_STACK",
        help="The stack whose environment is used.",
        autocompletion=completion.stacks,
    ),
]
EnvFile = Annotated[
    Path | None,
    typer.Option(
        "--env",
        metavar="FILE",
        help="An environment written by `launch env export`, instead of a stack.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Run = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run's id, the beginning of one, or `last`.",
        autocompletion=completion.runs,
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Give a key of the job file another value, e.g. args.epochs=1. May be repeated.",
        autocompletion=completion.job_keys,
    ),
]

DEFAULT_STACK = "local"


def open_environment(stack: str, env_file: Path | None) -> Environment:
    """The environment of the stack, or of the file where one is given."""
    from jobs.stack import load_environment

    return load_environment(stack, env_file)


def open_engine(environment: Environment) -> Engine:
    """The engine that the environment names."""
    from jobs.engines import load_engine

    return load_engine(environment)
