"""Read a region's VM sizes as Azure ML lists them, and make clusters of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from jobs.contracts.spec import Cluster
from jobs.engines.azure_ml.clusters import idle_seconds
from jobs.engines.azure_ml.states import items
from jobs.host.structs import prepared
from jobs.host.untrusted import parse_rows

if TYPE_CHECKING:
    from jobs.engines.azure_ml.client import ArmClient

# An `r` among a size's letters: learn.microsoft.com/azure/virtual-machines/vm-naming-conventions
_RDMA = re.compile(r"standard_[a-z]+\d+[a-z]*r[a-z]*(_.*)?", re.IGNORECASE)


class Size(Struct, frozen=True, kw_only=True):
    """A size; `family` is what its quota is counted by."""

    name: str
    family: str
    num_vcpus: int = msgspec.field(name="vCPUs")
    num_gpus: int = msgspec.field(name="gpus", default=0)
    compute_types: tuple[str, ...] = msgspec.field(name="supportedComputeTypes", default=())


class _Scale(Struct, frozen=True, kw_only=True, rename="camel"):
    max_node_count: int
    min_node_count: int = 0
    node_idle_time_before_scale_down: str | None = None


class _AmlCompute(Struct, frozen=True, kw_only=True, rename="camel"):
    vm_size: str
    vm_priority: str | None = None
    scale_settings: _Scale


def read_sizes(client: ArmClient) -> dict[str, Size]:
    """Read the sizes of the environment's region, by name in small letters; raises CloudRefusal."""
    environment = client.environment
    path = (
        f"/subscriptions/{environment.subscription_id}/providers"
        f"/Microsoft.MachineLearningServices/locations/{environment.location}/vmSizes"
    )
    listed = items(client.get(path, what="listing sizes").get("value"))
    return {each.name.lower(): each for each in parse_rows(listed, Size)}


def cluster_of(compute: str, properties: Any, sizes: Mapping[str, Size]) -> Cluster | None:
    """Make the cluster of a compute's properties.

    None where it is no AmlCompute, of an unknown size, or never has a node.
    """
    try:
        # Pulumi's numbers are all floating ones.
        live = msgspec.convert(properties, type=prepared(_AmlCompute), strict=False)
    except msgspec.ValidationError:
        return None
    size, scale = sizes.get(live.vm_size.lower()), live.scale_settings
    if size is None or scale.max_node_count == 0:
        return None
    return Cluster(
        compute=compute,
        size=size.name,
        gpus_per_node=size.num_gpus,
        cpus_per_node=size.num_vcpus,
        processes_per_node=size.num_gpus or 1,
        rdma=_RDMA.fullmatch(size.name) is not None,
        priority="low_priority" if live.vm_priority == "LowPriority" else "dedicated",
        min_nodes=scale.min_node_count,
        max_nodes=scale.max_node_count,
        idle_s=idle_seconds(scale.node_idle_time_before_scale_down),
        price_per_node_hour=None,
        currency=None,
        family=size.family,
    )
