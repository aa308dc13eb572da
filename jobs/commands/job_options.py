"""Define the options of `launch run`, `plan` and `rerun`: keys of the job file, and how it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from jobs.commands import completers
from jobs.commands.quantities import amount, time_limit

Job = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="Job file, Python script, notebook, or the name of a job in the catalog.",
        autocompletion=completers.jobs,
    ),
]
Arguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- ARGUMENT...]", show_default=False, help="Arguments of the script."),
]

# The options that stand for a key of the job file, and `--set` for any key.
Nodes = Annotated[
    str | None,
    typer.Option(
        "--nodes", metavar="N", help="Number of nodes, or `max` for all nodes of the cluster."
    ),
]
ProcessesPerNode = Annotated[
    str | None,
    typer.Option(
        "--processes-per-node", metavar="N", help="Ranks per node, or `gpu` for one per GPU."
    ),
]
ClusterName = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="NAME",
        help="Cluster to run on (default: the first that fits).",
        autocompletion=completers.clusters,
    ),
]
Priority = Annotated[
    str | None,
    typer.Option(
        "--priority",
        metavar="WORD",
        help="Priority in the queue: `low`, `normal` or `high`.",
        autocompletion=completers.priorities,
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a key of the job file, e.g. args.epochs=1. May be repeated.",
        autocompletion=completers.job_keys,
    ),
]

# What nodes and cluster are chosen by.
Deadline = Annotated[
    float | None,
    typer.Option(
        "--deadline",
        metavar="TIME",
        parser=time_limit,
        help="Choose the cheapest cluster and nodes that end within this time, e.g. 6h.",
    ),
]
Budget = Annotated[
    float | None,
    typer.Option(
        "--budget",
        metavar="AMOUNT",
        parser=amount,
        help="Choose cluster and nodes that cost at most this, in the cluster's currency.",
    ),
]

# How a run is started: followed or not, asked for or not.
Detach = Annotated[
    bool, typer.Option("-d", "--detach", help="Print the run's id and return at once.")
]
NoFetch = Annotated[
    bool,
    typer.Option(
        "--no-fetch",
        help="Do not download the results into ./RUN when the run ends (Azure).",
    ),
]
AskNothing = Annotated[bool, typer.Option("-y", "--yes", help="Do not ask before spending money.")]


def job_values(
    nodes: str | None, processes_per_node: str | None, cluster: str | None, priority: str | None
) -> dict[str, str]:
    """Collect the options that were given for a key of the job file."""
    given = {
        "nodes": nodes,
        "processes_per_node": processes_per_node,
        "cluster": cluster,
        "priority": priority,
    }
    return {key: value for key, value in given.items() if value is not None}


def job_words(values: Mapping[str, str], overrides: Sequence[str] | None) -> list[str]:
    """Give back the words that were typed for job_values and each `--set`."""
    options = [(f"--{key.replace('_', '-')}", value) for key, value in values.items()]
    return [
        word for pair in (*options, *(("--set", each) for each in overrides or ())) for word in pair
    ]
