"""Define the arguments that verbs share; open the environment, engine and run that they name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.commands import completers

if TYPE_CHECKING:
    from jobs.contracts.spec import Environment, RunHandle
    from jobs.engines.base import Engine, Runs

DEFAULT_STACK = "local"


def usual_stack() -> str:
    """Return the stack of a command that names none."""
    return os.environ.get("TRAINYARD_STACK") or DEFAULT_STACK


Stack = Annotated[
    str,
    typer.Option(
        *("-s", "--stack"),
        metavar="NAME",
        default_factory=usual_stack,
        show_default=False,
        help=f"Stack to use (default: TRAINYARD_STACK, else {DEFAULT_STACK}).",
        autocompletion=completers.stacks,
    ),
]
EnvFile = Annotated[
    Path | None,
    typer.Option(
        "--env",
        metavar="FILE",
        parser=Path,
        help="Environment file from `launch env export`, in place of a stack.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Refresh = Annotated[
    bool, typer.Option("--refresh", help="Ask Pulumi again; ignore the cached environment.")
]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="Do not ask for confirmation.")]

_RUN = "Run id, a unique beginning of one, or `last`."
Run = Annotated[
    str,
    typer.Argument(metavar="RUN", help=_RUN, autocompletion=completers.runs),
]
ManyRuns = Annotated[
    list[str],
    typer.Argument(
        metavar="RUN...",
        help="Run ids, unique beginnings of ids, or `last`.",
        autocompletion=completers.runs,
    ),
]

Follow = Annotated[bool, typer.Option("-f", "--follow", help="Follow until the run ends.")]
To = Annotated[Path, typer.Option("--to", metavar="DIR", parser=Path, help="Folder to write to.")]
ToStack = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="STACK",
        help="Stack to copy to, or its environment file (FILE.json).",
        autocompletion=completers.stacks,
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", metavar="FILE", parser=Path, help="File to write (default: stdout)."
    ),
]


def open_environment(stack: str, env_file: Path | None) -> Environment:
    """Load the environment of the stack, or of the file if one is given."""
    from jobs.stacks.read import load_environment

    return load_environment(stack, env_file)


def open_target(to: str) -> Environment:
    """Load the environment of the stack that is copied to, or of its file."""
    if to.endswith(".json"):
        return open_environment("", Path(to))
    return open_environment(to, None)


def open_priced(stack: str, env_file: Path | None) -> Environment:
    """Load the environment; add Azure's list price to clusters without a price."""
    from jobs.stacks.prices import with_list_prices

    return with_list_prices(open_environment(stack, env_file))


def open_engine(environment: Environment) -> Engine:
    """Load the engine that the environment names."""
    from jobs.engines import load_engine

    return load_engine(environment)


def open_store(environment: Environment) -> Runs:
    """Open the environment's runs."""
    from jobs.engines import load_store

    return load_store(environment)


def open_run(run: str, environment: Environment) -> tuple[Engine, RunHandle]:
    """Find the run that was named; return it with its engine."""
    engine = open_engine(environment)
    return engine, engine.store.find(run)


def stack_words(stack: str, env_file: Path | None) -> list[str]:
    """Give the words by which a pasted command meets the same environment."""
    if env_file is not None:
        return ["--env", str(env_file)]
    return ["-s", stack] if stack != usual_stack() else []
