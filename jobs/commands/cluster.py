"""`launch cluster`: look at a stack's clusters, keep nodes warm or let them go, change how many."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jobs.commands import completers, options
from jobs.commands.usage import make_app
from jobs.contracts.errors import NotFound, Refused
from jobs.host import console
from jobs.stacks.cost import as_of_text, money_text

if TYPE_CHECKING:
    from jobs.contracts.spec import Cluster
    from jobs.engines.azure_ml.client import Wire
    from jobs.engines.azure_ml.clusters import LiveCluster

ClusterName = Annotated[
    str,
    typer.Argument(
        metavar="CLUSTER", help="A cluster of the stack.", autocompletion=completers.clusters
    ),
]


def list_clusters(
    *, json: options.Json = False, stack: options.Stack, env: options.EnvFile = None
) -> None:
    """List the clusters: nodes by what they do, and what they cost now."""
    from jobs.engines.azure_ml.clusters import read_clusters

    wire = _open(stack, env)
    clusters = read_clusters(wire)
    if json:
        console.out_json([_as_json(each) for each in clusters])
        return
    if not clusters:
        console.say(f"stack `{wire.environment.stack}` has no cluster")
        return
    header = ["CLUSTER", "SIZE", "PRIORITY", "STATE", "NODES", "IDLE", "RUNNING", "PREPARING"]
    header += ["LEAVING", "UNUSABLE", "COSTS"]
    console.out(console.table(header, [_row(each) for each in clusters], right=range(4, 11)))
    _say_total(clusters)
    for each in clusters:
        for error in each.errors:
            console.warn(f"cluster `{each.name}`: {error}")


def show(
    *,
    cluster: ClusterName,
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """Show a cluster: its nodes with their runs, its scale, quota and cost."""
    from jobs.engines.azure_ml.clusters import list_nodes

    wire = _open(stack, env)
    declared, live = _read(wire, cluster)
    nodes = list_nodes(wire, declared) if live.nodes else []
    quota = _quota_text(wire, declared, live.max_nodes)
    if json:
        console.out_json({**_as_json(live), "node_list": nodes, "quota": quota})
        return
    counts = live.counts
    told = [
        (live.counts.idle, "idle"),
        (counts.running, "running"),
        (counts.preparing, "preparing"),
        (counts.leaving, "leaving"),
        (counts.unusable, "unusable"),
        (counts.preempted, "preempted"),
    ]
    doing = ", ".join(f"{number} {word}" for number, word in told if number)
    pairs = [
        ("cluster", f"{live.name} of stack {wire.environment.stack}"),
        ("compute", live.compute),
        ("size", f"{live.size}, {live.priority.replace('_', ' ')}"),
        ("state", live.state),
        ("nodes", f"{live.nodes}{f' ({doing})' if doing else ''}"),
        ("scale", f"{live.min_nodes} to {live.max_nodes}"),
        ("idle after", console.duration_text(live.idle_s)),
        ("price", f"{_rate(live.price(1), live)} a node{as_of_text(declared)}"),
        ("costs now", _rate(live.cost_per_hour, live)),
        ("kept warm", _warm_text(live, live.min_nodes) if live.min_nodes else "no node"),
        ("quota", quota),
        *[("error", error) for error in live.errors],
    ]
    console.out(console.fields(pairs))
    if nodes:
        rows = [[each.id, each.state, each.address or "", each.run or ""] for each in nodes]
        console.out()
        console.out(console.table(["NODE", "STATE", "ADDRESS", "RUN"], rows))


def pause(*, cluster: ClusterName, stack: options.Stack, env: options.EnvFile = None) -> None:
    """Keep no node warm, and wait until all are gone; runs go on to their end.

    Ctrl-C only ends the waiting. A run that is submitted later starts nodes again.
    """
    from jobs.engines.azure_ml.clusters import list_nodes, set_scale, wait_until_empty

    wire = _open(stack, env)
    declared, live = _read(wire, cluster)
    runs = sorted({each.run for each in list_nodes(wire, declared) if each.run})
    if runs:
        console.say(f"on it now: {', '.join(runs)}; their nodes go when they have ended")
    if live.min_nodes:
        set_scale(wire, declared, live, min_nodes=0, max_nodes=live.max_nodes)
        console.say(f"cluster `{live.name}` keeps no node warm any more")
    try:
        wait_until_empty(wire, declared, _tell_waiting)
    except KeyboardInterrupt:
        words = _typed("show", live.name, *options.stack_words(stack, env))
        console.say(f"nodes still go by themselves; {words} tells")
        raise
    was = f"; kept warm it cost {_warm_text(live, live.min_nodes)}" if live.min_nodes else ""
    console.out(f"cluster {live.name} has no node and costs nothing{was}")


def resume(
    *,
    cluster: ClusterName,
    nodes: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=options.whole_number(at_least=1),
            help="How many; else the minimum of the stack's settings, or 1 where that is 0.",
        ),
    ] = None,
    yes: options.Yes = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """Keep nodes warm, so that runs begin without waiting for machines.

    They are paid for until `launch cluster pause`, whether or not a run is on.
    """
    from jobs.engines.azure_ml.clusters import set_scale

    wire = _open(stack, env)
    declared, live = _read(wire, cluster)
    wanted = nodes or declared.min_nodes or 1
    if wanted > live.max_nodes:
        message = f"cluster `{live.name}` may have {live.max_nodes} nodes, not {wanted}"
        hint = _typed("resize", live.name, str(wanted), *options.stack_words(stack, env))
        raise Refused(message, hint=hint)
    cost = _warm_text(live, wanted)
    what = console.count_text(wanted, "node")
    if not yes and not console.confirm(f"{what} kept warm: {cost}. Do it?"):
        message = "nothing is changed"
        hint = _typed("show", live.name, *options.stack_words(stack, env))
        raise Refused(message, hint=hint)
    set_scale(wire, declared, live, min_nodes=wanted, max_nodes=live.max_nodes)
    console.out(f"cluster {live.name} keeps {what} warm: {cost}")
    words = _typed("pause", live.name, *options.stack_words(stack, env))
    console.say(f"to end it: {words}")


def resize(
    *,
    cluster: ClusterName,
    nodes: Annotated[
        int,
        typer.Argument(
            metavar="N", parser=options.whole_number(at_least=1), help="The most nodes."
        ),
    ],
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """Change the most nodes that a cluster may have; prints the setting."""
    from jobs.engines.azure_ml.clusters import set_scale

    wire = _open(stack, env)
    declared, live = _read(wire, cluster)
    if nodes < live.min_nodes:
        message = f"cluster `{live.name}` keeps {live.min_nodes} nodes warm"
        hint = _typed("pause", live.name, *options.stack_words(stack, env))
        raise Refused(message, hint=hint)
    set_scale(wire, declared, live, min_nodes=live.min_nodes, max_nodes=nodes)
    console.say(f"cluster `{live.name}` may have {nodes} nodes (it was {live.max_nodes})")
    most = live.price(nodes)
    if most is not None:
        console.say(f"all of them cost {_rate(most, live)}")
    if live.min_nodes:
        console.say(f"kept warm: {_warm_text(live, live.min_nodes)}")
    console.say(f"quota: {_quota_text(wire, declared, nodes)}")
    if not wire.environment.is_imported:
        _say_setting(live.name, nodes, wire.environment.stack, is_owner=env is None)


def _say_setting(cluster: str, nodes: int, stack: str, *, is_owner: bool) -> None:
    who = "" if is_owner else "for whoever owns the stack: "
    setting = f"trainyard:clusters.{cluster}.max_nodes"
    console.say(f"\n{who}the same as `pulumi config set --path {setting} {nodes} -s {stack}`,")
    console.say(f"which goes into Pulumi.{stack}.yaml, or the next `pulumi up` may take it back:")
    console.out(f"  trainyard:clusters:\n    {cluster}:\n      max_nodes: {nodes}")


def _typed(*words: str) -> str:
    return shlex.join(["launch", "cluster", *words])


def _open(stack: str, env: Path | None) -> Wire:
    from jobs.engines.azure_ml.client import Wire
    from jobs.engines.azure_ml.clusters import require_scaling

    environment = options.open_priced(stack, env)
    require_scaling(environment)
    return Wire(environment)


def _read(wire: Wire, name: str) -> tuple[Cluster, LiveCluster]:
    from jobs.engines.azure_ml.clusters import find_cluster, read_cluster

    declared = find_cluster(wire.environment, name)
    live = read_cluster(wire, declared)
    if live.state == "missing":
        message = f"Azure has no cluster `{declared.compute}`"
        stack = wire.environment.stack
        raise NotFound(message, hint=f"pulumi up -s {stack}; launch env show -s {stack} --refresh")
    return declared, live


def _as_json(live: LiveCluster) -> dict[str, Any]:
    import msgspec

    return {**msgspec.to_builtins(live), "cost_per_hour": live.cost_per_hour}


def _row(live: LiveCluster) -> list[str]:
    counts = live.counts
    return [
        live.name,
        live.size,
        live.priority.replace("_", " "),
        live.state,
        f"{live.nodes} of {live.min_nodes}-{live.max_nodes}",
        *(str(each) for each in (counts.idle, counts.running, counts.preparing)),
        *(str(each) for each in (counts.leaving, counts.unusable)),
        _rate(live.cost_per_hour, live),
    ]


def _say_total(clusters: list[LiveCluster]) -> None:
    """Only where it says more than the rows."""
    costs = [each.cost_per_hour for each in clusters if each.nodes]
    known = [cost for cost in costs if cost is not None]
    if len(known) > 1:
        but = "" if len(known) == len(costs) else ", besides those whose price is unknown"
        console.say(f"together {money_text(sum(known), clusters[0].currency)}/h{but}")


def _tell_waiting(live: LiveCluster) -> None:
    counts = live.counts
    idle = f", {counts.idle} idle" if counts.idle else ""
    busy = f", {counts.running} with runs" if counts.running else ""
    told = f"{console.count_text(live.nodes, 'node')}{busy}{idle}"
    console.say(f"waiting: {told}; idle ones go after {console.duration_text(live.idle_s)}")


def _quota_text(wire: Wire, declared: Cluster, max_nodes: int) -> str:
    """What of the quota its maximum needs; Azure may not tell everyone."""
    from jobs.engines.azure_ml.quota import cluster_text, quotas_of, read_quotas
    from jobs.engines.azure_ml.refusals import CloudRefusal

    try:
        usages = read_quotas(wire)
    except CloudRefusal as refusal:
        return f"not looked at: {refusal.message}"
    return cluster_text(declared, max_nodes, quotas_of(declared, wire.environment, usages))


def _warm_text(live: LiveCluster, num_nodes: int) -> str:
    """What nodes that are always there cost, by the hour, the day and the month."""
    from jobs.engines.azure_ml.clusters import HOURS_A_MONTH

    price = live.price(num_nodes)
    if price is None:
        return "at a price that is unknown"
    day, month = (f"{price * hours:.0f} {live.currency}" for hours in (24, HOURS_A_MONTH))
    return f"{money_text(price, live.currency)}/h, {day} a day, {month} a month"


def _rate(price: float | None, live: LiveCluster) -> str:
    return "unknown" if price is None else f"{money_text(price, live.currency)}/h"


app = make_app(
    {"ls": list_clusters, "show": show, "pause": pause, "resume": resume, "resize": resize},
    epilog="What nodes cost is Azure's list price, without any discount of yours.",
)
