"""The arguments that verbs share, and what they stand for: an environment, an engine, a run."""

from __future__ import annotations

import os
from argparse import Action, ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.commands import completers as completion

if TYPE_CHECKING:
    from jobs.contracts.spec import Environment, RunHandle
    from jobs.engines.base import Engine, Runs

DEFAULT_STACK = "local"


def add_stack(parser: ArgumentParser) -> None:
    """`--stack`."""
    _add_stack(parser.add_argument)


def _add_stack(add_argument: Callable[..., Action]) -> None:
    stack = add_argument(
        *("-s", "--stack"),
        metavar="NAME",
        default=_usual_stack(),
        help=f"The stack; else that of TRAINYARD_STACK, else {DEFAULT_STACK}.",
    )
    completion.offer(stack, completion.stacks)


def add_environment(parser: ArgumentParser) -> None:
    """`--stack`, and `--env` instead of it."""
    either = parser.add_mutually_exclusive_group()
    _add_stack(either.add_argument)
    env = either.add_argument(
        "--env",
        metavar="FILE",
        type=Path,
        help="An environment written by `launch env export`, instead of a stack.",
    )
    completion.offer(env, completion.files)


def add_json(parser: ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help="Print JSON.")


def add_run(parser: ArgumentParser, name: str = "run", *, is_required: bool = False) -> None:
    """A run, `last` where none is named."""
    run = parser.add_argument(
        name,
        metavar="RUN",
        nargs=None if is_required else "?",
        default="last",
        help="A run's id, the beginning of one, or `last`"
        + ("." if is_required else " (the default)."),
    )
    completion.offer(run, completion.runs)


def add_job(parser: ArgumentParser) -> None:
    """A job file or a job of the catalog."""
    job = parser.add_argument(
        "job", metavar="JOB", help="A job file, or the name of a job of the catalog."
    )
    completion.offer(job, completion.jobs)


def add_job_values(parser: ArgumentParser) -> None:
    """The options that stand for a key of the job file, and `--set` for any key."""
    parser.add_argument("--nodes", metavar="N", help="Nodes, or `max` for all of the cluster's.")
    parser.add_argument(
        "--processes-per-node", metavar="N", help="Ranks a node, or `gpu` for one a GPU."
    )
    cluster = parser.add_argument(
        "--cluster", metavar="NAME", help="The cluster; else the first that fits."
    )
    completion.offer(cluster, completion.clusters)
    priority = parser.add_argument("--priority", metavar="WORD", help="`low`, `normal` or `high`.")
    completion.offer(priority, completion.priorities)
    overrides = parser.add_argument(
        "--set",
        dest="overrides",
        metavar="KEY=VALUE",
        action="append",
        help="Give a key of the job file another value, e.g. args.epochs=1. May be repeated.",
    )
    completion.offer(overrides, completion.job_keys)


def add_start(parser: ArgumentParser) -> None:
    """How a run is started: followed or not, asked for or not."""
    parser.add_argument(
        "-d", "--detach", action="store_true", help="Print the run's id and come back at once."
    )
    parser.add_argument(
        "--no-fetch",
        dest="fetch",
        action="store_false",
        help="Leave in Azure what the run makes; else it is fetched at the end, into ./RUN.",
    )
    parser.add_argument("-y", "--yes", action="store_true", help="Do not ask where money is spent.")


def add_output(parser: ArgumentParser, text: str) -> None:
    """`--output`, a file."""
    output = parser.add_argument("-o", "--output", metavar="FILE", type=Path, help=text)
    completion.offer(output, completion.files)


def add_to(parser: ArgumentParser) -> None:
    """`--to`, the folder that a command makes."""
    to = parser.add_argument(
        "--to", metavar="DIR", type=Path, required=True, help="The folder to write to."
    )
    completion.offer(to, completion.files)


def open_environment(stack: str, env_file: Path | None) -> Environment:
    """The environment of the stack, or of the file where one is given."""
    from jobs.stacks.read import load_environment

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
    return ["-s", stack] if stack != _usual_stack() else []


def _usual_stack() -> str:
    return os.environ.get("TRAINYARD_STACK") or DEFAULT_STACK
