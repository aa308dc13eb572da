"""Define the arguments that verbs share, and open what they name: environment, engine, run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from jobs.commands import completers

if TYPE_CHECKING:
    from jobs.contracts.spec import Environment, RunHandle
    from jobs.engines.base import Engine, Runs

DEFAULT_STACK = "local"
CloudEngine = Literal["azureml", "azureml_v1"]


def whole_number(at_least: int) -> Callable[[str | int], int]:
    """Make the parser of a whole number that is not below a bound."""

    def parse(given: str | int) -> int:
        text = str(given)  # typer parses defaults, too
        # Up to 18 digits: what is kept in 64 bits wherever it goes.
        digits = text.removeprefix("-")
        number = int(text) if digits.isdecimal() and len(digits) <= 18 else None
        if number is None or number < at_least:
            message = f"`{text[:60]}` has to be a whole number, {at_least} or more"
            raise typer.BadParameter(message)
        return number

    return parse


def usual_stack() -> str:
    """Give the stack of a command that names none."""
    return os.environ.get("TRAINYARD_STACK") or DEFAULT_STACK


Stack = Annotated[
    str,
    typer.Option(
        *("-s", "--stack"),
        metavar="NAME",
        default_factory=usual_stack,
        show_default=False,
        help=f"The stack; else that of TRAINYARD_STACK, else {DEFAULT_STACK}.",
        autocompletion=completers.stacks,
    ),
]
EnvFile = Annotated[
    Path | None,
    typer.Option(
        "--env",
        metavar="FILE",
        parser=Path,
        help="An environment written by `launch env export`, instead of a stack.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Refresh = Annotated[bool, typer.Option("--refresh", help="Ask Pulumi, whatever the cache has.")]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")]

_RUN = "A run's id, the beginning of one, or `last`."
Run = Annotated[
    str,
    typer.Argument(metavar="RUN", help=_RUN, autocompletion=completers.runs),
]

Job = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="A job file, or the name of a job of the catalog.",
        autocompletion=completers.jobs,
    ),
]

# The options that stand for a key of the job file, and `--set` for any key.
Nodes = Annotated[
    str | None,
    typer.Option("--nodes", metavar="N", help="Nodes, or `max` for all of the cluster's."),
]
ProcessesPerNode = Annotated[
    str | None,
    typer.Option("--processes-per-node", metavar="N", help="Ranks a node, or `gpu` for one a GPU."),
]
ClusterName = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="NAME",
        help="The cluster; else the first that fits.",
        autocompletion=completers.clusters,
    ),
]
Priority = Annotated[
    str | None,
    typer.Option(
        "--priority",
        metavar="WORD",
        help="`low`, `normal` or `high`.",
        autocompletion=completers.priorities,
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Give a key of the job file another value, e.g. args.epochs=1. May be repeated.",
        autocompletion=completers.job_keys,
    ),
]

# How a run is started: followed or not, asked for or not.
Detach = Annotated[
    bool, typer.Option("-d", "--detach", help="Print the run's id and come back at once.")
]
NoFetch = Annotated[
    bool,
    typer.Option(
        "--no-fetch",
        help="Leave in Azure what the run makes; else it is fetched at the end, into ./RUN.",
    ),
]
AskNothing = Annotated[bool, typer.Option("-y", "--yes", help="Do not ask where money is spent.")]

Follow = Annotated[bool, typer.Option("-f", "--follow", help="Go on until the run is over.")]
To = Annotated[
    Path, typer.Option("--to", metavar="DIR", parser=Path, help="The folder to write to.")
]
Output = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", metavar="FILE", parser=Path, help="The file to write; else stdout."
    ),
]


def open_environment(stack: str, env_file: Path | None) -> Environment:
    """The environment of the stack, or of the file where one is given."""
    from jobs.stacks.stack import load_environment

    return load_environment(stack, env_file)


def open_priced(stack: str, env_file: Path | None) -> Environment:
    """The same, its clusters with Azure's list price where the stack gives none."""
    from jobs.stacks.prices import with_list_prices

    return with_list_prices(open_environment(stack, env_file))


def open_engine(environment: Environment) -> Engine:
    """The engine that the environment names."""
    from jobs.engines import load_engine

    return load_engine(environment)


def open_store(environment: Environment) -> Runs:
    """The environment's runs."""
    from jobs.engines import load_store

    return load_store(environment)


def open_run(run: str, environment: Environment) -> tuple[Engine, RunHandle]:
    """The run that was named, and the engine that looks after it."""
    engine = open_engine(environment)
    return engine, engine.store.find(run)


def job_values(
    nodes: str | None, processes_per_node: str | None, cluster: str | None, priority: str | None
) -> dict[str, str]:
    """The options that stand for a key of the job file, those that were given."""
    given = {
        "nodes": nodes,
        "processes_per_node": processes_per_node,
        "cluster": cluster,
        "priority": priority,
    }
    return {key: value for key, value in given.items() if value is not None}


def job_words(values: Mapping[str, str], overrides: Sequence[str] | None) -> list[str]:
    """The options that gave `job_values`, and each `--set`, as they are typed."""
    options = [(f"--{key.replace('_', '-')}", value) for key, value in values.items()]
    return [
        word for pair in (*options, *(("--set", each) for each in overrides or ())) for word in pair
    ]


def stack_words(stack: str, env_file: Path | None) -> list[str]:
    """What a command needs to be pasted with, to meet the same environment."""
    if env_file is not None:
        return ["--env", str(env_file)]
    return ["-s", stack] if stack != usual_stack() else []
