"""Sizes as Azure ML lists them, and the clusters that are made of them."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.contracts.spec import Cluster
from jobs.engines.azure_ml.sizes import Size, cluster_of


def made(size: Size, **properties: Any) -> Cluster | None:
    live = {"vmSize": size.name.upper(), "scaleSettings": {"maxNodeCount": 4.0}, **properties}
    return cluster_of("gpu-1a2b3c", live, {size.name.lower(): size})


def test_a_cluster_has_the_hardware_of_its_size() -> None:
    size = Size(name="Standard_ND40rs_v2", family="NDv2", num_vcpus=40, num_gpus=8)
    scale = {"maxNodeCount": 4.0, "minNodeCount": 1.0, "nodeIdleTimeBeforeScaleDown": "PT2M"}
    assert made(size, vmPriority="LowPriority", scaleSettings=scale) == Cluster(
        compute="gpu-1a2b3c",
        size="Standard_ND40rs_v2",
        gpus_per_node=8,
        cpus_per_node=40,
        processes_per_node=8,
        rdma=True,
        priority="low_priority",
        min_nodes=1,
        max_nodes=4,
        idle_s=120,
        price_per_node_hour=None,
        currency=None,
        family="NDv2",
    )


@pytest.mark.parametrize(
    ("name", "has_rdma"),
    [
        ("Standard_ND96asr_v4", True),
        ("standard_hb120rs_v3", True),
        ("Standard_NC24ads_A100_v4", False),
        ("Standard_D4ds_v4", False),
    ],
)
def test_an_r_among_the_letters_of_a_size_is_infiniband(name: str, has_rdma: bool) -> None:
    cluster = made(Size(name=name, family="f", num_vcpus=4))
    assert cluster is not None
    assert (cluster.rdma, cluster.processes_per_node) == (has_rdma, 1)


@pytest.mark.parametrize(
    "properties",
    [
        {"scaleSettings": {"maxNodeCount": 0}},
        {"vmSize": "Standard_D8ds_v4"},
        {"scaleSettings": None},
    ],
)
def test_what_never_has_a_node_or_is_of_an_unknown_size_is_no_cluster(properties: Any) -> None:
    assert made(Size(name="Standard_D4ds_v4", family="f", num_vcpus=4), **properties) is None
