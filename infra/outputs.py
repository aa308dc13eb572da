"""The only place where output names are written (docs/schemas/environment-1.json)."""

from __future__ import annotations

from typing import Any

from infra.local.azurite import DATA_CONTAINER, RUNS_CONTAINER
from infra.local.cluster import SIZE, LocalCluster
from infra.local.platform import LocalPlatform

ENVIRONMENT = "environment"
SCHEMA = 1


def environment(stack: str, platform: LocalPlatform) -> dict[str, Any]:
    """All that `launch` may know of the stack; never a key or a connection string."""
    settings = platform.settings
    return {
        "schema": SCHEMA,
        "stack": stack,
        "engine": "local",
        "location": "local",
        "subscription_id": None,
        "resource_group": None,
        "workspace": {
            "name": platform.workspace.name,
            "id": platform.workspace.urn,
            "endpoint": platform.workspace.endpoint,
        },
        "storage": {
            "account": platform.storage.account,
            "blob_endpoint": platform.storage.blob_endpoint,
            "containers": {"data": DATA_CONTAINER, "runs": RUNS_CONTAINER},
            "folder": platform.storage.folder,
        },
        "registry": None,
        "key_vault": None,
        "clusters": {name: _cluster(cluster) for name, cluster in platform.clusters.items()},
        "images": dict(settings.images),
    }


def _cluster(cluster: LocalCluster) -> dict[str, Any]:
    args = cluster.args
    return {
        "compute": cluster.compute,
        "size": SIZE,
        "gpus_per_node": args.node.num_gpus,
        "cpus_per_node": args.node.num_cpus,
        "processes_per_node": args.processes_per_node,
        "rdma": False,
        "priority": "dedicated",
        # The machine is there whether or not a run is: nothing scales, nothing idles, nothing costs.
        "min_nodes": args.num_nodes,
        "max_nodes": args.num_nodes,
        "idle_s": 0,
        "price_per_node_hour": 0.0,
        "currency": None,
    }
