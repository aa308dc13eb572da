"""The options that verbs share, and what they stand for: an environment, an engine, a run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs import completion

if TYPE_CHECKING:
    from jobs.engines.base import Engine
    from jobs.runs import RunStore
    from jobs.spec import Environment, RunHandle

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

Job = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="A job file, or the name of a job of the catalog.",
        autocompletion=completion.jobs,
    ),
]
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
        autocompletion=completion.clusters,
    ),
]
PriorityName = Annotated[
    str | None, typer.Option("--priority", metavar="WORD", help="`low`, `normal` or `high`.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask where money is spent.")]
Detach = Annotated[
    bool, typer.Option("--detach", "-d", help="Print the run's id and come back at once.")
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


def open_store(environment: Environment) -> RunStore:
    """The environment's runs."""
    from jobs.runs import RunStore

    return RunStore.of(environment)


def open_run(run: str, environment: Environment) -> tuple[Engine, RunHandle]:
    """The run that was named, and the engine that looks after it."""
    handle = open_store(environment).find(run)
    return open_engine(environment), handle


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


def stack_words(stack: str, env_file: Path | None) -> list[str]:
    """What a command needs to be pasted with, to meet the same environment."""
    if env_file is not None:
        return ["--env", str(env_file)]
    return ["-s", stack] if stack != (os.environ.get("TRAINYARD_STACK") or DEFAULT_STACK) else []
