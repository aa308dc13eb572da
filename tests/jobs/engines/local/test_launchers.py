"""From a job to its ranks' argv and environment: who gets which cores, GPUs and variables."""

from __future__ import annotations

import json

import pytest
from msgspec import structs

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import Limits
from jobs.engines.frameworks import patience_s
from jobs.engines.local.engine import LocalEngine
from jobs.engines.local.launchers import (
    gang_request,
    mpirun_argv,
    share_cpus,
    share_gpus,
    tensorflow_environments,
)
from tests.fakes.gangs import make_cluster, make_environment, make_spec


@pytest.mark.parametrize(
    ("allowed", "per_node", "nodes", "processes", "expected"),
    [
        (range(4), 4, (0,), 2, [[0, 1], [2, 3]]),
        (range(4), 4, (0,), 3, [[0], [1], [2, 3]]),
        (range(8), 4, (1,), 2, [[4, 5], [6, 7]]),
        (range(8), 4, (0, 1), 2, [[0, 1], [2, 3], [4, 5], [6, 7]]),
        (range(2), 2, (0,), 4, [[0], [1], [0], [1]]),
        (range(2), 2, (1,), 2, [[0], [1]]),  # a cluster that promises more than there is
        ([3, 5, 9], 3, (0,), 3, [[3], [5], [9]]),
    ],
)
def test_cores_are_dealt_contiguous_disjoint_and_equal(
    allowed: range | list[int],
    per_node: int,
    nodes: tuple[int, ...],
    processes: int,
    expected: list[list[int]],
) -> None:
    shared = share_cpus(
        list(allowed), cpus_per_node=per_node, nodes=nodes, processes_per_node=processes
    )
    assert shared == expected


@pytest.mark.parametrize("num_ranks", range(1, 9))
def test_no_rank_gets_two_cores_more_than_another(num_ranks: int) -> None:
    shared = share_cpus(range(8), cpus_per_node=8, nodes=(0,), processes_per_node=num_ranks)
    sizes = [len(cores) for cores in shared]
    assert max(sizes) - min(sizes) <= 1
    assert sorted(core for cores in shared for core in cores) == list(range(8))


@pytest.mark.parametrize(
    ("gpus", "capacity", "nodes", "expected"),
    [
        ("", 2, (0, 1), None),
        ("01", 1, (0,), None),
        ("0", 2, (0, 1), None),
        ("0123", 2, (0, 1), ["0,1", "2,3"]),
        # Two runs at once, each on a node of its own, or on two.
        ("01", 2, (0,), ["0"]),
        ("01", 2, (1,), ["1"]),
        ("0123", 4, (0, 1), ["0", "1"]),
        ("0123", 4, (2, 3), ["2", "3"]),
        ("0123", 4, (0, 3), ["0", "3"]),
        # Those that the shell shows.
        ("7253", 2, (0, 1), ["7,2", "5,3"]),
        ("725", 2, (1,), ["2"]),
    ],
)
def test_each_local_node_sees_gpus_of_its_own(
    gpus: str, capacity: int, nodes: tuple[int, ...], expected: list[str] | None
) -> None:
    assert share_gpus(tuple(gpus), nodes=nodes, capacity_nodes=capacity) == expected


@pytest.mark.parametrize(
    ("hang_s", "patience"), [(600.0, 660), (0.2, 61), (1e9, 14 * 86400), (None, 14 * 86400)]
)
def test_frameworks_wait_longer_than_we_do_but_no_longer_than_they_can_count(
    hang_s: float | None, patience: int
) -> None:
    assert patience_s(Limits(wall_clock_s=None, hang_s=hang_s)) == patience


def test_horovod_ranks_are_told_who_they_are_and_stay_on_loopback() -> None:
    spec = make_spec(["python", "a.py"], launcher="horovod", nodes=2, processes_per_node=2)
    request = gang_request(spec, make_cluster(nodes=2))
    assert request.argv == ("python", "-I", "-S", "rank.pyz", "rank.json")
    assert request.env == {
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_IFACE": "lo",
        "HOROVOD_GLOO_TIMEOUT_SECONDS": "660",
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "660",
        "NCCL_SOCKET_IFNAME": "lo",
    }
    assert request.ranks[3].env == {
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "NODE_RANK": "1",
        "HOROVOD_RANK": "3",
        "HOROVOD_SIZE": "4",
        "HOROVOD_LOCAL_RANK": "1",
        "HOROVOD_LOCAL_SIZE": "2",
        "HOROVOD_CROSS_RANK": "1",
        "HOROVOD_CROSS_SIZE": "2",
        "HOROVOD_HOSTNAME": "node-1",
    }


def test_torch_ranks_stay_on_loopback_and_are_told_what_torchrun_tells() -> None:
    spec = make_spec(["python", "a.py"], launcher="torch")
    assert gang_request(spec, make_cluster()).env == {
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        "TP_SOCKET_IFNAME": "lo",
        "ROLE_NAME": "default",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "TRAINYARD_COLLECTIVE_TIMEOUT_S": "660",
    }


@pytest.mark.parametrize(("num_cores", "num_threads"), [(1, "6"), (6, "6"), (64, "64")])
def test_tensorflow_has_a_thread_more_than_the_job_has_processes(
    num_cores: int, num_threads: str
) -> None:
    spec = make_spec(
        ["python"], launcher="tensorflow", nodes=2, processes_per_node=1, parameter_servers=3
    )
    cluster = structs.replace(make_cluster(nodes=2), cpus_per_node=num_cores)
    assert gang_request(spec, cluster).env == {"TF_NUM_INTEROP_THREADS": num_threads}


def test_mpirun_gets_no_environment_on_its_command_line() -> None:
    spec = make_spec(["python", "a.py"], launcher="mpi", env={"TOKEN": "hunter2"})
    request = gang_request(spec, make_cluster())
    assert request.argv == mpirun_argv(2)
    assert not any("hunter2" in word or word == "-x" for word in request.argv)
    assert request.argv[-5:] == ("python", "-I", "-S", "rank.pyz", "rank.json")
    assert [rank.env for rank in request.ranks] == [{}, {}]


def test_job_s_own_environment_wins() -> None:
    spec = make_spec(["python"], launcher="torch", env={"GLOO_SOCKET_IFNAME": "eth0"})
    assert gang_request(spec, make_cluster()).env["GLOO_SOCKET_IFNAME"] == "eth0"


def test_parameter_servers_come_after_the_ranks_and_nobody_waits_for_them() -> None:
    spec = make_spec(
        ["python"], launcher="tensorflow", nodes=2, processes_per_node=1, parameter_servers=3
    )
    ranks = gang_request(spec, make_cluster(nodes=2)).ranks
    seen = [(rank.rank, rank.node, rank.local_rank, rank.task, rank.awaited) for rank in ranks]
    assert seen == [
        (0, 0, 0, ("worker", 0), True),
        (1, 1, 0, ("worker", 1), True),
        (2, 0, 1, ("ps", 0), False),
        (3, 1, 1, ("ps", 1), False),
        (4, 0, 2, ("ps", 2), False),
    ]
    assert ranks[3].env == {
        "RANK": "3",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "1",
        "NODE_RANK": "1",
        "CUDA_VISIBLE_DEVICES": "-1",
    }
    shared = share_cpus(range(4), cpus_per_node=2, nodes=(0, 1), processes_per_node=1)
    with_servers = share_cpus(
        range(4), cpus_per_node=2, nodes=(0, 1), processes_per_node=1, num_servers=3
    )
    assert with_servers == [*shared, *[[0, 1, 2, 3]] * 3]


def test_with_a_chief_the_workers_serve_and_only_the_chief_is_waited_for() -> None:
    spec = make_spec(
        ["python"], launcher="tensorflow", processes_per_node=3, parameter_servers=1, chief=True
    )
    ranks = gang_request(spec, make_cluster()).ranks
    assert [(rank.task, rank.awaited) for rank in ranks] == [
        (("chief", 0), True),
        (("worker", 0), False),
        (("worker", 1), False),
        (("ps", 0), False),
    ]
    lonely = make_spec(
        ["python"], launcher="tensorflow", processes_per_node=1, parameter_servers=1, chief=True
    )
    with pytest.raises(LaunchError, match="a chief needs at least one worker beside it"):
        gang_request(lonely, make_cluster())


def test_each_task_is_told_the_whole_cluster_and_which_port_is_its_own() -> None:
    spec = make_spec(["python"], launcher="tensorflow", parameter_servers=1)
    told = tensorflow_environments(gang_request(spec, make_cluster()).ranks, [4001, 4002, 4003])
    cluster = {"worker": ["127.0.0.1:4001", "127.0.0.1:4002"], "ps": ["127.0.0.1:4003"]}
    tasks = [("worker", 0, 4001), ("worker", 1, 4002), ("ps", 0, 4003)]
    assert {
        rank: (json.loads(env["TF_CONFIG"]), env["TRAINYARD_HELD_PORT"])
        for rank, env in told.items()
    } == {
        rank: ({"cluster": cluster, "task": {"type": kind, "index": index}}, str(port))
        for rank, (kind, index, port) in enumerate(tasks)
    }


@pytest.mark.parametrize(
    ("name", "hint"), [("a100", "it has: cpu"), ("gpu", "did you mean `cpu`?")]
)
def test_unknown_cluster_is_named_with_those_there_are(tmp_path, name, hint) -> None:
    engine = LocalEngine(make_environment(tmp_path))
    with pytest.raises(LaunchError) as caught:
        engine.plan(make_spec(["true"], cluster=name))
    assert caught.value.message == f"stack `local` has no cluster `{name}`"
    assert caught.value.hint == hint
