"""Whether the quota holds all nodes of a stack's clusters, before `pulumi up` and after.

What `pulumi up` would make is read from its preview; what sizes need, from Azure's list of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, structs

from jobs.contracts.spec import (
    ENVIRONMENT_SCHEMA,
    Cluster,
    Containers,
    Environment,
    Storage,
    Workspace,
)
from jobs.engines.azure_ml.quota import Quota, quotas_of, read_quotas
from jobs.engines.azure_ml.sizes import cluster_of, read_sizes
from jobs.stacks.preview import Preview

if TYPE_CHECKING:
    from jobs.engines.azure_ml.client import Wire

_COMPUTE = re.compile(r"azure-native:machinelearningservices(/\w+)?:Compute")
_SUBSCRIPTION = re.compile(r"/subscriptions/([0-9a-fA-F-]{36})/")


class QuotaCheck(Struct, frozen=True, kw_only=True):
    """One limit on vCPUs against the largest that the clusters it counts may become.

    Not `ok` is one that keeps a cluster from having even one node.
    """

    quota: str
    clusters: tuple[str, ...]
    needed: int
    used: int
    limit: int
    short: int
    ok: bool


def check_clusters(wire: Wire) -> list[QuotaCheck]:
    """Every limit that the environment's clusters count against; raises EnvironmentFailure."""
    environment = wire.environment
    if not environment.clusters:
        return []
    usages = read_quotas(wire)
    counted: dict[Quota, list[str]] = {}
    for name, cluster in environment.clusters.items():
        for quota in quotas_of(cluster, environment, usages):
            counted.setdefault(quota, []).append(name)
    return [_check(quota, names, environment.clusters) for quota, names in counted.items()]


def _check(quota: Quota, names: Sequence[str], clusters: Mapping[str, Cluster]) -> QuotaCheck:
    needed = sum(clusters[name].max_nodes * clusters[name].cpus_per_node for name in names)
    return QuotaCheck(
        quota=quota.name,
        clusters=tuple(names),
        needed=needed,
        used=quota.used,
        limit=quota.limit,
        short=max(needed - quota.limit, 0),
        ok=all(clusters[name].cpus_per_node <= quota.limit for name in names),
    )


class _Inner(Struct, frozen=True, kw_only=True):
    properties: Any = None


class _Inputs(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a stack declares of an AmlCompute."""

    compute_name: str
    resource_group_name: str
    workspace_name: str
    location: str
    properties: _Inner
    tags: dict[str, str] = {}


def declared_environment(preview: bytes, stack: str) -> Environment | None:
    """What `pulumi up` would make, as much of it as a quota is asked with.

    None where no cluster on Azure is declared. Raises EnvironmentFailure.
    """
    from jobs.engines.azure_ml.client import Wire

    computes = [
        msgspec.json.decode(each.new_state.inputs, type=_Inputs)
        for each in msgspec.json.decode(preview, type=Preview).steps
        if each.new_state and _COMPUTE.fullmatch(each.new_state.type) and "delete" not in each.op
    ]
    subscription = _SUBSCRIPTION.search(preview.decode(errors="replace"))
    if not computes or subscription is None:
        return None
    environment = _place(computes[0], subscription[1], stack)
    sizes = read_sizes(Wire(environment))
    clusters: dict[str, Cluster] = {}
    for each in computes:
        cluster = cluster_of(each.compute_name, each.properties.properties, sizes)
        if cluster is not None:
            clusters[each.tags.get("cluster", each.compute_name)] = cluster
    return structs.replace(environment, clusters=clusters)


def _place(compute: _Inputs, subscription: str, stack: str) -> Environment:
    """Where the clusters are; of the rest a preview says too little, and no quota asks for it."""
    group, name = compute.resource_group_name, compute.workspace_name
    workspace = (
        f"/subscriptions/{subscription}/resourceGroups/{group}/providers"
        f"/Microsoft.MachineLearningServices/workspaces/{name}"
    )
    return Environment(
        schema=ENVIRONMENT_SCHEMA,
        stack=stack,
        engine="azureml",
        location=compute.location,
        subscription_id=subscription,
        resource_group=group,
        workspace=Workspace(name=name, id=workspace, endpoint=""),
        storage=Storage(account="", blob_endpoint="", containers=Containers(data="", runs="")),
        registry=None,
        key_vault=None,
        clusters={},
        images={},
    )
