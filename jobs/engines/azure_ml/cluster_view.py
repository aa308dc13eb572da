"""Read clusters of a workspace and their quotas; word nodes, scale, quota and cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jobs.contracts.errors import NotFound
from jobs.host import console
from jobs.stacks.cost import as_of_text, money_text

if TYPE_CHECKING:
    from jobs.contracts.spec import Cluster, Environment
    from jobs.engines.azure_ml.client import ArmClient
    from jobs.engines.azure_ml.clusters import LiveCluster, Node
    from jobs.engines.azure_ml.quota import QuotaCheck


def read_existing(client: ArmClient, name: str) -> tuple[Cluster, LiveCluster]:
    """Read a cluster by its name: as the stack declares it, and as it is.

    Raises NotFound if the stack or Azure has none.
    """
    from jobs.engines.azure_ml.clusters import find_cluster, read_cluster

    declared = find_cluster(client.environment, name)
    live = read_cluster(client, declared)
    if live.state == "missing":
        message = f"Azure has no cluster `{declared.compute}`"
        stack = client.environment.stack
        raise NotFound(message, hint=f"pulumi up -s {stack}; launch env show -s {stack} --refresh")
    return declared, live


def as_json(live: LiveCluster) -> dict[str, Any]:
    """Give a cluster as `--json` prints it."""
    import msgspec

    return {**msgspec.to_builtins(live), "cost_per_hour": live.cost_per_hour}


def clusters_table(clusters: Sequence[LiveCluster]) -> str:
    """Lay out clusters, one per row: states of their nodes and current cost."""
    header = ["CLUSTER", "SIZE", "PRIORITY", "STATE", "NODES", "IDLE", "RUNNING", "PREPARING"]
    header += ["LEAVING", "UNUSABLE", "COSTS"]
    rows = [_row(each) for each in clusters]
    # What no node does first, then what says least.
    idle = [at for at in range(5, 10) if all(row[at] == "0" for row in rows)]
    others = [at for at in (8, 7, 2, 5, 6) if at not in idle]
    return console.table(header, rows, right=range(4, 11), gives_way=[*idle, *others])


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
        rate_text(live.cost_per_hour, live),
    ]


def total_text(clusters: Sequence[LiveCluster]) -> str | None:
    """Word the total cost of several clusters; None if one row shows it already."""
    costs = [each.cost_per_hour for each in clusters if each.nodes]
    known = [cost for cost in costs if cost is not None]
    if len(known) < 2:
        return None
    but = "" if len(known) == len(costs) else ", plus clusters of unknown price"
    return f"together {money_text(sum(known), clusters[0].currency)}/h{but}"


def cluster_text(live: LiveCluster, declared: Cluster, stack: str, quota: str) -> str:
    """Lay out a cluster's facts, one a line."""
    counts = live.counts
    told = [
        (counts.idle, "idle"),
        (counts.running, "running"),
        (counts.preparing, "preparing"),
        (counts.leaving, "leaving"),
        (counts.unusable, "unusable"),
        (counts.preempted, "preempted"),
    ]
    doing = ", ".join(f"{number} {word}" for number, word in told if number)
    return console.fields(
        [
            ("cluster", f"{live.name} of stack {stack}"),
            ("compute", live.compute),
            ("size", f"{live.size}, {live.priority.replace('_', ' ')}"),
            ("state", live.state),
            ("nodes", f"{live.nodes}{f' ({doing})' if doing else ''}"),
            ("scale", f"{live.min_nodes} to {live.max_nodes}"),
            ("idle after", console.duration_text(live.idle_s)),
            ("price", f"{rate_text(live.price(1), live)} a node{as_of_text(declared)}"),
            ("costs now", rate_text(live.cost_per_hour, live)),
            ("kept warm", warm_text(live, live.min_nodes) if live.min_nodes else "no node"),
            ("quota", quota),
            *[("error", error) for error in live.errors],
        ]
    )


def nodes_table(nodes: Sequence[Node]) -> str:
    """Lay out a cluster's nodes, one a row."""
    rows = [[each.id, each.state, each.address or "", each.run or ""] for each in nodes]
    return console.table(["NODE", "STATE", "ADDRESS", "RUN"], rows)


def waiting_text(live: LiveCluster) -> str:
    """Word which nodes a pause waits for."""
    counts = live.counts
    idle = f", {counts.idle} idle" if counts.idle else ""
    busy = f", {counts.running} with runs" if counts.running else ""
    told = f"{console.count_text(live.nodes, 'node')}{busy}{idle}"
    return f"waiting: {told}; idle nodes are released after {console.duration_text(live.idle_s)}"


def quota_text(client: ArmClient, declared: Cluster, max_nodes: int) -> str:
    """Word the part of the quota that the cluster's maximum needs; Azure may not tell everyone."""
    from jobs.engines.azure_ml import quota
    from jobs.engines.azure_ml.refusals import CloudRefusal

    try:
        usages = quota.read_quotas(client)
    except CloudRefusal as refusal:
        return f"not checked: {refusal.message}"
    found = quota.quotas_of(declared, client.environment, usages)
    return quota.cluster_text(declared, max_nodes, found)


def warm_text(live: LiveCluster, num_nodes: int) -> str:
    """Word the cost of nodes that are always there: by the hour, the day and the month."""
    from jobs.engines.azure_ml.clusters import HOURS_A_MONTH

    price = live.price(num_nodes)
    if price is None:
        return "at an unknown price"
    day, month = (f"{price * hours:.0f} {live.currency}" for hours in (24, HOURS_A_MONTH))
    return f"{money_text(price, live.currency)}/h, {day} a day, {month} a month"


def rate_text(price: float | None, live: LiveCluster) -> str:
    """Word a price by the hour."""
    return "unknown" if price is None else f"{money_text(price, live.currency)}/h"


def setting_texts(cluster: str, nodes: int, stack: str) -> tuple[str, str]:
    """Word where a stack's settings take a cluster's maximum, and give that setting."""
    key = f"trainyard:clusters.{cluster}.max_nodes"
    told = (
        f"to keep it: `pulumi config set --path {key} {nodes} -s {stack}`,\n"
        f"or this in Pulumi.{stack}.yaml; without it the next `pulumi up` may undo the change:"
    )
    return told, f"  trainyard:clusters:\n    {cluster}:\n      max_nodes: {nodes}"


def quotas_of(environment: Environment) -> list[QuotaCheck]:
    """Check each quota; none on this machine. Raises EnvironmentFailure if Azure does not answer."""
    from jobs.engines.azure_ml.client import ArmClient
    from jobs.engines.azure_ml.quota import check_clusters

    if environment.workspace.is_folder:
        return []
    return check_clusters(ArmClient(environment))


def quota_table(checks: Sequence[QuotaCheck]) -> str:
    """Lay out the quotas, one a row."""
    header = ["QUOTA", "STATE", "LIMIT", "USED", "NEEDED", "SHORT", "CLUSTERS"]
    rows = [
        [
            each.quota,
            "FAILED" if not each.ok else "ok" if not each.short else "short",
            *(str(number) for number in (each.limit, each.used, each.needed, each.short)),
            ", ".join(each.clusters),
        ]
        for each in checks
    ]
    return console.table(header, rows, right=(2, 3, 4, 5))
