"""Choose what NCCL and MPI are told on nodes with InfiniBand, by VM size (pure).

Whose word each value is:
- topology, relaxed ordering, CPU affinity, and which size is of which series: Azure/azhpc-images at
  8e9d055f, `components/customizations/ndv{2,4,5}.sh` and `components/setup_sku_customizations.sh`, which
  write them into /etc/nccl.conf of Azure's own images; a container does not see that file.
- CUDA_DEVICE_ORDER, UCX_IB_PCI_RELAXED_ORDERING: the checks of Azure/azurehpc-health-checks
  (`customTests/azure_nccl_allreduce.nhc`).
- NCCL_DEBUG: ours, for logs that say why NCCL failed on a node; its own default says nothing.
  https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-debug
- NCCL_SOCKET_IFNAME: NCCL starts its ranks over IP, and takes interfaces `ib*` first. They need no address
  on these nodes. Azure's checks name `eth0`; to leave the others out holds under any name.
  https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-socket-ifname
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from jobs.contracts.spec import Cluster, Environment, JobSpec
from jobs.rank.topology import TOPOLOGY_VARIABLE

_SERIES = (
    (re.compile(r"standard_nd40rs_v2"), "ndv2"),
    (re.compile(r"standard_nd.*v4"), "ndv4"),
    (re.compile(r"standard_nd96is.*_h[12]00_v5"), "ndv5"),
)
_EVERYWHERE = {
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    "NCCL_DEBUG": "WARN",
    "NCCL_SOCKET_IFNAME": "^ib,docker,lo",
}
_IGNORED_AFFINITY = {"NCCL_IGNORE_CPU_AFFINITY": "1"}
_RELAXED = {"NCCL_IB_PCI_RELAXED_ORDERING": "1", **_IGNORED_AFFINITY}
_OF_SERIES: Mapping[str, Mapping[str, str]] = {
    "ndv2": _IGNORED_AFFINITY,
    "ndv4": _RELAXED,
    "ndv5": _RELAXED,
}


def topology_series(cluster: Cluster) -> str | None:
    """Name the topology that NCCL needs on a cluster's nodes; None where it finds its own."""
    if not _has_fabric(cluster):
        return None
    size = cluster.size.lower()
    return next((series for pattern, series in _SERIES if pattern.fullmatch(size)), None)


def fabric_environment(spec: JobSpec, cluster: Cluster) -> dict[str, str]:
    """Make the variables of nodes with InfiniBand; the job's own `env` may override them."""
    if not _has_fabric(cluster):
        return {}
    variables = {**_EVERYWHERE, **_OF_SERIES.get(topology_series(cluster) or "", {})}
    if spec.launcher in {"horovod", "mpi"} and "NCCL_IB_PCI_RELAXED_ORDERING" in variables:
        variables["UCX_IB_PCI_RELAXED_ORDERING"] = "on"
    return variables


def fabric_notes(spec: JobSpec, environment: Environment) -> list[str]:
    """Note the variables that a job gets for its nodes' InfiniBand, and does not set itself."""
    cluster = environment.clusters[spec.cluster]
    variables = fabric_environment(spec, cluster)
    if series := topology_series(cluster):
        variables[TOPOLOGY_VARIABLE] = f"{series}-topology.xml"
    shown = [f"{name}={value}" for name, value in variables.items() if name not in spec.env]
    if not shown:
        return []
    return [f"sets for InfiniBand, unless `env` does: {', '.join(shown)}"]


def _has_fabric(cluster: Cluster) -> bool:
    return cluster.rdma and cluster.gpus_per_node > 0
