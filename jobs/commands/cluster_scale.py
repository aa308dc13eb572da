"""`launch cluster pause|resume`: release a cluster's nodes, or keep some warm."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.commands import completers, options, quantities
from jobs.contracts.errors import Refused
from jobs.host import console

if TYPE_CHECKING:
    from jobs.engines.azure_ml.client import ArmClient

ClusterName = Annotated[
    str,
    typer.Argument(
        metavar="CLUSTER", help="Cluster of the stack.", autocompletion=completers.clusters
    ),
]


def open_workspace(stack: str, env: Path | None) -> ArmClient:
    """Open the workspace of an environment whose clusters can be scaled."""
    from jobs.engines.azure_ml.client import ArmClient
    from jobs.engines.azure_ml.clusters import require_scaling

    environment = options.open_priced(stack, env)
    require_scaling(environment)
    return ArmClient(environment)


def pause(*, cluster: ClusterName, stack: options.Stack, env: options.EnvFile = None) -> None:
    """Set the minimum to 0 nodes and wait until all are released; runs go on to their end.

    Ctrl-C only ends the waiting. A later run starts nodes again.
    """
    from jobs.engines.azure_ml.cluster_view import read_existing, waiting_text, warm_text
    from jobs.engines.azure_ml.clusters import list_nodes, set_scale, wait_until_empty

    client = open_workspace(stack, env)
    declared, live = read_existing(client, cluster)
    runs = sorted({each.run for each in list_nodes(client, declared) if each.run})
    if runs:
        console.say(f"runs on it now: {', '.join(runs)}; their nodes are released when they end")
    if live.min_nodes:
        set_scale(client, declared, live, min_nodes=0, max_nodes=live.max_nodes)
        console.say(f"cluster `{live.name}` keeps no nodes warm now")
    try:
        wait_until_empty(client, declared, lambda now: console.say(waiting_text(now)))
    except KeyboardInterrupt:
        words = typed("show", live.name, *options.stack_words(stack, env))
        console.say(f"nodes are still being released; {words} shows them")
        raise
    was = f"; kept warm it cost {warm_text(live, live.min_nodes)}" if live.min_nodes else ""
    console.out(f"cluster {live.name} has no node and costs nothing{was}")


def resume(
    *,
    cluster: ClusterName,
    nodes: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=quantities.whole_number(at_least=1),
            help="Number of warm nodes (default: the stack's minimum, but at least 1).",
        ),
    ] = None,
    yes: options.Yes = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """Keep nodes warm, so that runs begin without waiting for machines.

    Warm nodes cost money until `launch cluster pause`, even when no run uses them.
    """
    from jobs.engines.azure_ml.cluster_view import read_existing, warm_text
    from jobs.engines.azure_ml.clusters import set_scale

    client = open_workspace(stack, env)
    declared, live = read_existing(client, cluster)
    wanted = nodes or declared.min_nodes or 1
    if wanted > live.max_nodes:
        message = f"cluster `{live.name}` may have {live.max_nodes} nodes, not {wanted}"
        hint = typed("resize", live.name, str(wanted), *options.stack_words(stack, env))
        raise Refused(message, hint=hint)
    cost = warm_text(live, wanted)
    what = console.count_text(wanted, "node")
    if not yes and not console.confirm(f"{what} kept warm: {cost}. Do it?"):
        message = "nothing is changed"
        hint = typed("show", live.name, *options.stack_words(stack, env))
        raise Refused(message, hint=hint)
    set_scale(client, declared, live, min_nodes=wanted, max_nodes=live.max_nodes)
    console.out(f"cluster {live.name} keeps {what} warm: {cost}")
    words = typed("pause", live.name, *options.stack_words(stack, env))
    console.say(f"to end it: {words}")


def typed(*words: str) -> str:
    """Give a command on clusters, to be pasted."""
    return shlex.join(["launch", "cluster", *words])
