"""`launch cluster`: list and show a stack's clusters; keep nodes warm, let them go, resize."""

from __future__ import annotations

from typing import Annotated

import typer

from jobs.commands import cluster_scale, options, quantities
from jobs.commands.cluster_scale import ClusterName, open_workspace, typed
from jobs.commands.usage import make_app
from jobs.contracts.errors import Refused
from jobs.host import console


def list_clusters(
    *, json: options.Json = False, stack: options.Stack, env: options.EnvFile = None
) -> None:
    """List the clusters with the states of their nodes and their current cost."""
    from jobs.engines.azure_ml import cluster_view as view
    from jobs.engines.azure_ml.clusters import read_clusters

    client = open_workspace(stack, env)
    clusters = read_clusters(client)
    if json:
        console.out_json([view.as_json(each) for each in clusters])
        return
    if not clusters:
        console.say(f"stack `{client.environment.stack}` has no cluster")
        return
    console.out(view.clusters_table(clusters))
    if total := view.total_text(clusters):
        console.say(total)
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
    """Show a cluster: nodes with their runs, scale, quota and cost."""
    from jobs.engines.azure_ml import cluster_view as view
    from jobs.engines.azure_ml.clusters import list_nodes

    client = open_workspace(stack, env)
    declared, live = view.read_existing(client, cluster)
    nodes = list_nodes(client, declared) if live.nodes else []
    quota = view.quota_text(client, declared, live.max_nodes)
    if json:
        console.out_json({**view.as_json(live), "node_list": nodes, "quota": quota})
        return
    console.out(view.cluster_text(live, declared, client.environment.stack, quota))
    if nodes:
        console.out()
        console.out(view.nodes_table(nodes))


def resize(
    *,
    cluster: ClusterName,
    nodes: Annotated[
        int,
        typer.Argument(
            metavar="N", parser=quantities.whole_number(at_least=1), help="Maximum number of nodes."
        ),
    ],
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """Change a cluster's maximum number of nodes; prints the setting."""
    from jobs.engines.azure_ml import cluster_view as view
    from jobs.engines.azure_ml.clusters import set_scale

    client = open_workspace(stack, env)
    declared, live = view.read_existing(client, cluster)
    if nodes < live.min_nodes:
        message = f"cluster `{live.name}` keeps {live.min_nodes} nodes warm"
        hint = typed("pause", live.name, *options.stack_words(stack, env))
        raise Refused(message, hint=hint)
    set_scale(client, declared, live, min_nodes=live.min_nodes, max_nodes=nodes)
    console.say(f"cluster `{live.name}` may have {nodes} nodes (it was {live.max_nodes})")
    most = live.price(nodes)
    if most is not None:
        console.say(f"all of them cost {view.rate_text(most, live)}")
    if live.min_nodes:
        console.say(f"kept warm: {view.warm_text(live, live.min_nodes)}")
    console.say(f"quota: {view.quota_text(client, declared, nodes)}")
    if not client.environment.is_imported:
        who = "" if env is None else "for the owner of the stack: "
        same, setting = view.setting_texts(live.name, nodes, client.environment.stack)
        console.say(f"\n{who}{same}")
        console.out(setting)


app = make_app(
    {
        "ls": list_clusters,
        "show": show,
        "pause": cluster_scale.pause,
        "resume": cluster_scale.resume,
        "resize": resize,
    },
    epilog="Costs are Azure's list prices, without your discounts.",
)
