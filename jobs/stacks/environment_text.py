"""Lay out an environment's parts and clusters for `launch env`."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.contracts.spec import Cluster, Environment
from jobs.host import console
from jobs.stacks.cost import as_of_text, money_text
from jobs.stacks.reachability import PartCheck


def parts_table(parts: Sequence[PartCheck]) -> str:
    """Lay out the parts and whether each can be used; then what mends those that cannot."""
    rows = [[each.part, _state(each), each.detail] for each in parts]
    laid = console.table(["PART", "STATE", "DETAIL"], rows)
    mends: dict[str, list[str]] = {}
    for each in parts:
        if each.mend:
            mends.setdefault(each.mend, []).append(each.part)
    lines = [f"{', '.join(names)}: {mend}" for mend, names in mends.items()]
    return "\n".join([laid, "", "to mend it:", *lines]) if lines else laid


def _state(check: PartCheck) -> str:
    if not check.known:
        return "unknown"
    return "ok" if check.ok else "FAILED"


def environment_text(environment: Environment) -> str:
    """Lay out stack, workspace, store and images, one a line."""
    storage = environment.storage
    pairs = [
        ("stack", environment.stack),
        ("engine", environment.engine),
        ("location", environment.location),
        ("workspace", environment.workspace.endpoint),
        ("storage", storage.blob_endpoint),
        ("containers", f"{storage.containers.data}, {storage.containers.runs}"),
    ]
    if environment.resource_group:
        pairs.insert(3, ("resource group", environment.resource_group))
    if storage.folder:
        pairs.append(("storage folder", storage.folder))
    if environment.registry:
        pairs.append(("registry", environment.registry.login_server))
    if environment.key_vault:
        pairs.append(("key vault", environment.key_vault.uri))
    pairs += [(f"image {name}", reference) for name, reference in environment.images.items()]
    return console.fields(pairs)


def clusters_table(environment: Environment) -> str:
    """Lay out the clusters, one a row, with the price of a node."""
    header = ["CLUSTER", "COMPUTE", "SIZE", "NODES", "CORES", "GPUS", "PROCESSES", "PRICE/NODE/H"]
    rows = [
        [
            name,
            cluster.compute,
            cluster.size,
            str(cluster.max_nodes)
            if cluster.min_nodes == cluster.max_nodes
            else f"{cluster.min_nodes}-{cluster.max_nodes}",
            str(cluster.cpus_per_node),
            str(cluster.gpus_per_node),
            str(cluster.processes_per_node),
            _price(cluster),
        ]
        for name, cluster in environment.clusters.items()
    ]
    return console.table(header, rows, right=(3, 4, 5, 6, 7))


def _price(cluster: Cluster) -> str:
    price = cluster.price_per_node_hour
    if price is None:
        return "unknown"
    return "free" if price == 0 else money_text(price, cluster.currency) + as_of_text(cluster)
