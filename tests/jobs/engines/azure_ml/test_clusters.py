"""Clusters as they stand in Azure, from what Azure tells."""

from __future__ import annotations

import pytest

from jobs.contracts.errors import EnvironmentFailure, LaunchError, NotFound, Refused
from jobs.engines.azure_ml.client import Reply
from jobs.engines.azure_ml.cluster_view import clusters_table
from jobs.engines.azure_ml.clusters import (
    LiveCluster,
    NodeCounts,
    find_cluster,
    idle_seconds,
    list_nodes,
    read_cluster,
    read_clusters,
    require_scaling,
    set_scale,
)
from jobs.host import console
from tests.fakes.cloud_stack import WORKSPACE, make_cloud_environment
from tests.fakes.gangs import make_environment

NONE = NodeCounts(idle=0, running=0, preparing=0, leaving=0, unusable=0, preempted=0)
GPU = LiveCluster(
    name="gpu",
    compute="gpu-4d5e6f",
    size="STANDARD_NC64AS_T4_V3",
    priority="low_priority",
    state="resizing",
    min_nodes=1,
    max_nodes=2,
    idle_s=120,
    nodes=2,
    wanted_nodes=2,
    counts=NodeCounts(idle=0, running=1, preparing=1, leaving=0, unusable=0, preempted=0),
    errors=("Operation results in exceeding quota limits of Core.",),
    price_per_node_hour=None,
    currency=None,
)
# As Azure answers: figures of a GET, as azure-ai-ml's models name them.
COMPUTE = {
    "name": "gpu-4d5e6f",
    "properties": {
        "computeType": "AmlCompute",
        "provisioningState": "Succeeded",
        "properties": {
            "vmSize": "STANDARD_NC64AS_T4_V3",
            "vmPriority": "LowPriority",
            "scaleSettings": {
                "minNodeCount": 1,
                "maxNodeCount": 2,
                "nodeIdleTimeBeforeScaleDown": "PT2M",
            },
            "currentNodeCount": 2,
            "targetNodeCount": 2,
            "allocationState": "Resizing",
            "nodeStateCounts": {"runningNodeCount": 1, "preparingNodeCount": 1},
            "errors": [
                {
                    "error": {
                        "code": "ClusterCoreQuotaReached",
                        "message": "Operation results in exceeding quota limits of Core.\nmore",
                    }
                }
            ],
        },
    },
}


class FakeClient:
    """Answers as Azure would; keeps what was sent."""

    def __init__(self):
        self.environment = make_cloud_environment()
        self.workspace = WORKSPACE
        self.sent = []

    def find(self, path, **_):
        return COMPUTE if path == f"{WORKSPACE}/computes/gpu-4d5e6f" else None

    def post(self, path, **_):
        assert path == f"{WORKSPACE}/computes/gpu-4d5e6f/listNodes"
        node = {
            "nodeId": "n0",
            "nodeState": "running",
            "runId": "r",
            "privateIpAddress": "10.0.0.4",
        }
        after = f"https://management.azure.com{path}?$skiptoken=a%2Fb"
        return Reply(status=200, headers={}, body={"nodes": [node], "nextLink": after})

    def get(self, path, *, api_version, query, **_):
        assert (api_version, query) == (None, {"$skiptoken": "a/b"})
        return {"nodes": [{"nodeId": "n1", "nodeState": "idle", "runId": None}]}

    def patch(self, path, body, **_):
        self.sent.append((path, body))
        return Reply(status=200, headers={}, body={})

    def wait(self, reply, **_):
        return True


def test_every_cluster_of_the_stack_is_told_also_one_that_azure_has_not():
    cpu, gpu = read_clusters(FakeClient())
    assert gpu == GPU
    assert (cpu.name, cpu.state, cpu.nodes, cpu.counts) == ("cpu", "missing", 0, NONE)


def test_nodes_are_told_page_by_page_with_the_run_on_each():
    gpu = make_cloud_environment().clusters["gpu"]
    nodes = [(each.id, each.state, each.run) for each in list_nodes(FakeClient(), gpu)]
    assert nodes == [("n0", "running", "r"), ("n1", "idle", None)]


class OddClient(FakeClient):
    """Answers with a cluster that is just being made, or with something else."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def find(self, path, **_):
        return self.answer


def test_a_cluster_that_is_being_made_tells_of_nothing_yet():
    gpu = make_cloud_environment().clusters["gpu"]
    live = {"vmSize": None, "scaleSettings": None, "nodeStateCounts": None, "errors": None}
    answer = {"properties": {"provisioningState": "Creating", "properties": live}}
    for each in (answer, {"properties": {"provisioningState": "Creating", "properties": None}}):
        found = read_cluster(OddClient(each), gpu)
        assert (found.state, found.nodes, found.size) == ("creating", 0, gpu.size)


@pytest.mark.parametrize("answer", [[], {}, {"properties": "none"}])
def test_an_answer_that_is_no_cluster_is_one_line(answer):
    gpu = make_cloud_environment().clusters["gpu"]
    with pytest.raises(
        EnvironmentFailure,
        match=r"^looking at cluster `gpu`: this version cannot read Azure's answer",
    ):
        read_cluster(OddClient(answer), gpu)


def test_only_the_scale_is_sent_all_three_parts_of_it():
    client = FakeClient()
    set_scale(client, client.environment.clusters["gpu"], GPU, min_nodes=0, max_nodes=5)
    scale = {"minNodeCount": 0, "maxNodeCount": 5, "nodeIdleTimeBeforeScaleDown": "PT120S"}
    body = {"properties": {"properties": {"scaleSettings": scale}}}
    assert client.sent == [(f"{WORKSPACE}/computes/gpu-4d5e6f", body)]


def test_a_minimum_above_the_maximum_is_never_sent():
    client = FakeClient()
    with pytest.raises(Refused, match="cannot keep 3 nodes and have 2 at most"):
        set_scale(client, client.environment.clusters["gpu"], GPU, min_nodes=3, max_nodes=2)
    assert client.sent == []


def test_a_scale_that_was_sent_and_not_confirmed_is_no_refusal(monkeypatch):
    client = FakeClient()
    monkeypatch.setattr(client, "wait", lambda _, **__: False)
    with pytest.raises(EnvironmentFailure, match="did not confirm the new scale within 120 s"):
        set_scale(client, client.environment.clusters["gpu"], GPU, min_nodes=0, max_nodes=5)
    assert len(client.sent) == 1


def test_a_cluster_is_found_by_either_of_its_names():
    environment = make_cloud_environment()
    assert find_cluster(environment, "gpu") is find_cluster(environment, "gpu-4d5e6f")
    with pytest.raises(NotFound, match="has no cluster `tpu`"):
        find_cluster(environment, "tpu")


def test_this_machine_is_no_cluster_that_scales(tmp_path):
    with pytest.raises(LaunchError, match="are this machine, which cannot be scaled"):
        require_scaling(make_environment(tmp_path))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("PT2M", 120), ("PT120S", 120), ("PT1H0.5S", 3600), ("P1DT1S", 86401), (None, 0), ("x", 0)],
)
def test_idle_times_are_read_as_azure_writes_them(text, seconds):
    assert idle_seconds(text) == seconds


def test_a_narrow_table_of_clusters_leaves_out_what_no_node_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(console, "terminal_width", lambda: 80)
    header, row = clusters_table([GPU]).splitlines()
    assert header.split() == [
        *("CLUSTER", "SIZE", "PRIORITY", "STATE", "NODES", "RUNNING", "PREPARING", "COSTS"),
    ]
    assert row.split()[-5:] == ["of", "1-2", "1", "1", "unknown"]
    assert max(len(header), len(row)) <= 80
