"""NCCL on nodes with InfiniBand: variables and topology by VM size."""

from __future__ import annotations

import hashlib
from pathlib import Path
from xml.etree.ElementTree import canonicalize

import pytest
from msgspec import structs

from jobs.contracts.spec import Cluster
from jobs.engines.azure_ml.fabric import fabric_environment, topology_series
from jobs.engines.azure_ml.node_job import environment_variables, node_job
from jobs.engines.azure_ml.request import plan_job
from jobs.rank.topology import lay_topology, topology
from tests.fakes.cloud_stack import IMAGE, make_cloud_environment
from tests.fakes.gangs import make_cluster, make_spec

IP = {
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    "NCCL_DEBUG": "WARN",
    "NCCL_SOCKET_IFNAME": "^ib,docker,lo",
}
AFFINITY = {"NCCL_IGNORE_CPU_AFFINITY": "1"}
RELAXED = {"NCCL_IB_PCI_RELAXED_ORDERING": "1"}
# Of the files in topology/ of Azure/azhpc-images at 8e9d055f, in canonical XML without white space.
OF_AZURES_IMAGES = {
    "ndv2": "d92294acfde3bbed9ce1e4e856fe40567cd977717ac39fa0d87efedfd4a28599",
    "ndv4": "d01f11bf751322de75390bf99d6f030fffb03d2d58e86968c7c27c160d7e6c8e",
    "ndv5": "dfd34cf4608c544356423a48cdffd6adb0c2d4b676cac8dd167719b4c3598c39",
}


def cluster(size: str, *, rdma: bool = True, gpus: int = 8) -> Cluster:
    return structs.replace(make_cluster(), size=size, rdma=rdma, gpus_per_node=gpus)


@pytest.mark.parametrize(
    ("size", "series", "variables"),
    [
        ("Standard_ND40rs_v2", "ndv2", {**IP, **AFFINITY}),
        ("Standard_ND96asr_v4", "ndv4", {**IP, **RELAXED, **AFFINITY}),
        ("Standard_ND96amsr_A100_v4", "ndv4", {**IP, **RELAXED, **AFFINITY}),
        ("Standard_ND96isr_H100_v5", "ndv5", {**IP, **RELAXED, **AFFINITY}),
        ("STANDARD_ND96ISR_H200_V5", "ndv5", {**IP, **RELAXED, **AFFINITY}),
        ("Standard_ND128isr_NDR_GB200_v6", None, IP),
    ],
)
def test_nccl_is_told_how_the_nodes_of_a_size_are_built(
    size: str, series: str | None, variables: dict[str, str]
) -> None:
    nodes = cluster(size)
    spec = make_spec(["python"], launcher="torch")
    assert (topology_series(nodes), fabric_environment(spec, nodes)) == (series, variables)


@pytest.mark.parametrize(
    "nodes",
    [
        cluster("Standard_ND96isr_H100_v5", rdma=False),
        cluster("Standard_HB120rs_v3", gpus=0),
        cluster("Standard_NC96ads_A100_v4", rdma=False, gpus=4),
    ],
)
def test_nothing_is_set_without_infiniband_between_gpus(nodes: Cluster) -> None:
    spec = make_spec(["python"], launcher="horovod")
    assert (topology_series(nodes), fabric_environment(spec, nodes)) == (None, {})


def test_mpi_is_told_of_relaxed_ordering_too() -> None:
    spec = make_spec(["python"], launcher="mpi")
    variables = fabric_environment(spec, cluster("Standard_ND96asr_v4"))
    assert variables == {**IP, **RELAXED, **AFFINITY, "UCX_IB_PCI_RELAXED_ORDERING": "on"}


def test_env_of_the_job_comes_first_and_the_plan_shows_the_rest() -> None:
    environment = make_cloud_environment(clusters={"gpu": cluster("Standard_ND96isr_H100_v5")})
    chosen = {"NCCL_SOCKET_IFNAME": "eth0", "NCCL_TOPO_FILE": "/opt/mine.xml"}
    spec = make_spec(["python"], launcher="torch", cluster="gpu", env=chosen, image=IMAGE)
    variables = environment_variables(spec, environment, run="a", attempt=1)
    told = {name: value for name, value in variables.items() if "NCCL_" in name}
    assert told == {
        **chosen,
        **RELAXED,
        **AFFINITY,
        "NCCL_DEBUG": "WARN",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    }
    assert node_job(spec, environment).topology == "ndv5"
    shown = ", ".join(
        [
            "CUDA_DEVICE_ORDER=PCI_BUS_ID",
            "NCCL_DEBUG=WARN",
            "NCCL_IB_PCI_RELAXED_ORDERING=1",
            "NCCL_IGNORE_CPU_AFFINITY=1",
        ]
    )
    assert plan_job(spec, environment).notes == (
        f"sets for InfiniBand, unless `env` does: {shown}",
    )


@pytest.mark.parametrize("series", OF_AZURES_IMAGES)
def test_topology_is_that_of_azures_own_images(series: str, tmp_path: Path) -> None:
    text = canonicalize(topology(series), strip_text=True)
    assert hashlib.sha256(text.encode()).hexdigest() == OF_AZURES_IMAGES[series]
    path = Path(lay_topology(series, str(tmp_path)))
    assert (path, path.read_text()) == (tmp_path / f"{series}-topology.xml", topology(series))
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
