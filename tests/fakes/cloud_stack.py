"""The environment of a dev stack on Azure, for tests that talk to nobody."""

from __future__ import annotations

from typing import Any

import msgspec

from jobs.contracts.spec import (
    Cluster,
    Containers,
    Environment,
    KeyVault,
    Registry,
    Storage,
    Workspace,
)

GROUP = "/subscriptions/S/resourceGroups/G"
WORKSPACE = f"{GROUP}/providers/Microsoft.MachineLearningServices/workspaces/W"
DIGEST = "sha256:" + "a" * 64
IMAGE = f"registry.azurecr.io/pytorch@{DIGEST}"


def make_cloud_environment(**changes: Any) -> Environment:
    """Two clusters: `cpu` of 4 nodes, `gpu` of 2 low-priority ones with 4 GPUs each."""
    cpu = Cluster(
        compute="cpu-1a2b3c",
        size="Standard_D4s_v5",
        gpus_per_node=0,
        cpus_per_node=4,
        processes_per_node=2,
        rdma=False,
        priority="dedicated",
        min_nodes=0,
        max_nodes=4,
        idle_s=120,
        price_per_node_hour=None,
        currency=None,
    )
    gpu = msgspec.structs.replace(
        cpu,
        compute="gpu-4d5e6f",
        size="Standard_NC64as_T4_v3",
        gpus_per_node=4,
        cpus_per_node=64,
        processes_per_node=4,
        priority="low_priority",
        max_nodes=2,
    )
    made = Environment(
        schema=1,
        stack="dev",
        engine="azureml",
        location="westeurope",
        subscription_id="S",
        resource_group="G",
        workspace=Workspace(name="W", id=WORKSPACE, endpoint="https://westeurope.api.azureml.ms"),
        storage=Storage(
            account="store",
            blob_endpoint="https://store.blob.core.windows.net",
            containers=Containers(data="data", runs="runs"),
        ),
        registry=Registry(login_server="registry.azurecr.io"),
        key_vault=KeyVault(uri="https://vault.vault.azure.net/"),
        clusters={"cpu": cpu, "gpu": gpu},
        images={"pytorch": IMAGE},
    )
    return msgspec.structs.replace(made, **changes)
