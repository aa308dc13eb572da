"""Writes the stack's outputs, whose names stand nowhere else (docs/schemas/environment-1.json)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # Each loads its own stack's libraries, and only one of them is there at a time.
    from infra.cloud.cluster import CloudCluster
    from infra.cloud.platform import CloudPlatform
    from infra.local.cluster import LocalCluster
    from infra.local.platform import LocalPlatform

ENVIRONMENT = "environment"
SCHEMA = 1


def local_environment(stack: str, platform: LocalPlatform) -> dict[str, Any]:
    """Build the output `environment` of the local stack; no key or connection string is in it."""
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
            "containers": {"data": platform.data_container, "runs": platform.runs_container},
            "folder": platform.storage.folder,
        },
        "registry": None,
        "key_vault": None,
        "clusters": {name: _local_cluster(cluster) for name, cluster in platform.clusters.items()},
        "images": dict(settings.images),
        "network": None,
    }


def _local_cluster(cluster: LocalCluster) -> dict[str, Any]:
    args = cluster.args
    return {
        "compute": cluster.compute,
        "size": cluster.size,
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
        "family": None,
        "price_as_of": None,
        "secrets": None,
    }


def cloud_environment(platform: CloudPlatform) -> dict[str, Any]:
    """Build the output `environment` of a stack on Azure.

    Addresses are Azure's answers: a preview does not know those of resources that are not made.
    """
    settings, names = platform.context.settings, platform.context.names
    return {
        "schema": SCHEMA,
        "stack": settings.stack,
        "engine": "azureml",
        "location": settings.location,
        "subscription_id": names.subscription_id,
        "resource_group": names.resource_group,
        "workspace": {
            "name": names.workspace,
            "id": platform.workspace.scope.id,
            "endpoint": platform.workspace.endpoint,
        },
        "storage": {
            "account": names.data_account,
            "blob_endpoint": f"https://{names.data_account}.blob.core.windows.net/",
            "containers": {"data": platform.data_container, "runs": platform.runs_container},
            "folder": None,
        },
        "registry": {"login_server": platform.registry.login_server},
        "key_vault": {"uri": platform.vault.uri},
        "clusters": {name: _cloud_cluster(cluster) for name, cluster in platform.clusters.items()},
        "images": dict(settings.images),
        "network": settings.network,
    }


def _cloud_cluster(cluster: CloudCluster) -> dict[str, Any]:
    args = cluster.args.settings
    size = args.hardware
    return {
        "compute": cluster.compute_name,
        "size": args.size,
        "gpus_per_node": size.gpus,
        "cpus_per_node": size.vcpus,
        "processes_per_node": args.processes_per_node,
        "rdma": size.rdma,
        "priority": args.priority,
        "min_nodes": args.min_nodes,
        "max_nodes": args.max_nodes,
        "idle_s": args.idle_s,
        # Unknown to the stack: prices differ by contract and change.
        "price_per_node_hour": None,
        "currency": None,
        "family": size.family,
        "price_as_of": None,
        "secrets": list(args.secrets or ()),
    }
