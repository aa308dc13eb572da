"""Turns a job into the argv and environment of its ranks: pure, equal on every machine.

What is known only when the gang starts (ports, cores, the interpreter) is added by the functions
at the end; they are pure, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec
from msgspec import Struct

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import Cluster, JobSpec, Launcher, Plan
from jobs.engines.frameworks import patience_s, torch_environment
from jobs.engines.local.containers import ContainerRequest, container_request
from jobs.host.structs import prepared
from jobs.rank.program import PROGRAM_FILE

LOOPBACK = "127.0.0.1"
STREAM_CACHE = "TRAINYARD_STREAM_CACHE_BYTES"
# Quick start: no site, no environment of the interpreter's own. A rank needs neither.
RANK_ARGV = ("python", "-I", "-S", PROGRAM_FILE, "rank.json")


class RankRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rank: its place and its own variables.

    `task` is its type and index in TensorFlow's cluster. A rank that is not `awaited` serves the
    others and never ends by itself: the run is over without it.
    """

    rank: int
    node: int
    local_rank: int
    env: dict[str, str]
    task: tuple[str, int] | None = None
    awaited: bool = True


class GangRequest(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A gang that runs a job on this machine; the `request` of a local plan.

    `argv` starts one rank, or with the launcher `mpi` all of them. `env` is common to all ranks;
    ports are not in it.
    """

    compute: str
    capacity_nodes: int
    cpus_per_node: int
    nodes: int
    processes_per_node: int
    launcher: Launcher
    argv: tuple[str, ...]
    command: tuple[str, ...]
    setup: tuple[str, ...]
    env: dict[str, str]
    ranks: tuple[RankRequest, ...]
    container: ContainerRequest | None = None


def read_request(plan: Plan) -> GangRequest:
    """Decode the request of a local plan."""
    return msgspec.json.decode(plan.request, type=prepared(GangRequest))


def gang_request(spec: JobSpec, cluster: Cluster) -> GangRequest:
    """Decide which processes the local engine starts for a job.

    That the job fits the cluster `resolve` has seen to. Raises LaunchError for what this engine
    cannot do.
    """
    _check(spec)
    return GangRequest(
        compute=cluster.compute,
        capacity_nodes=cluster.max_nodes,
        cpus_per_node=cluster.cpus_per_node,
        nodes=spec.nodes,
        processes_per_node=spec.processes_per_node,
        launcher=spec.launcher,
        argv=mpirun_argv(spec.world_size) if spec.launcher == "mpi" else RANK_ARGV,
        command=spec.command,
        setup=spec.setup,
        env={**_launcher_environment(spec, cluster), **spec.env},
        ranks=(
            *(_rank_request(spec, rank) for rank in range(spec.world_size)),
            *(_server_request(spec, index) for index in range(spec.parameter_servers)),
        ),
        container=container_request(spec),
    )


def _check(spec: JobSpec) -> None:
    if spec.chief and spec.world_size < 2:
        message = "a chief needs at least one worker beside it, and the job has one process"
        raise LaunchError(message, hint="--set processes_per_node=2")
    stream_cache_bytes(spec.env)


def stream_cache_bytes(env: Mapping[str, str]) -> int | None:
    """Read the bytes that the job's streamed inputs may keep; None if it does not say.

    Raises LaunchError for what is no number of bytes.
    """
    text = env.get(STREAM_CACHE)
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,18}", text):
        message = f"`env: {STREAM_CACHE}`: `{text}` is not a number of bytes"
        raise LaunchError(message, hint=f"{STREAM_CACHE}: '20000000000' for 20 GB")
    return int(text)


def _launcher_environment(spec: JobSpec, cluster: Cluster) -> dict[str, str]:
    """Give the variables that all ranks of a launcher share; the job's own `env` may override them."""
    patience = str(patience_s(spec.limits))
    if spec.launcher == "horovod":
        return {
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
            "HOROVOD_GLOO_IFACE": "lo",
            "HOROVOD_GLOO_TIMEOUT_SECONDS": patience,
            "HOROVOD_STALL_CHECK_TIME_SECONDS": patience,
            "NCCL_SOCKET_IFNAME": "lo",
        }
    if spec.launcher == "torch":
        return {
            "GLOO_SOCKET_IFNAME": "lo",
            "NCCL_SOCKET_IFNAME": "lo",
            "TP_SOCKET_IFNAME": "lo",
            **torch_environment(spec.limits, has_store=True),
        }
    if spec.launcher == "mpi":
        # Ranks oversubscribe cores on a laptop: a waiting rank must give its core away.
        return {"OMPI_MCA_mpi_yield_when_idle": "1", "HOROVOD_STALL_CHECK_TIME_SECONDS": patience}
    if spec.launcher == "tensorflow":
        # A thread waits for each process that another one calls; with one a core, which is what
        # TensorFlow takes by itself, a rank of one core waits for itself and never ends.
        return {"TF_NUM_INTEROP_THREADS": str(max(cluster.cpus_per_node, spec.num_processes + 1))}
    return {}


def _rank_request(spec: JobSpec, rank: int) -> RankRequest:
    node, local_rank = divmod(rank, spec.processes_per_node)
    if spec.launcher == "mpi":  # mpirun gives each rank its place
        return RankRequest(rank=rank, node=node, local_rank=local_rank, env={})
    env = {
        "RANK": str(rank),
        "WORLD_SIZE": str(spec.world_size),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(spec.processes_per_node),
        "NODE_RANK": str(node),
    }
    if spec.launcher == "horovod":
        env |= {
            "HOROVOD_RANK": str(rank),
            "HOROVOD_SIZE": str(spec.world_size),
            "HOROVOD_LOCAL_RANK": str(local_rank),
            "HOROVOD_LOCAL_SIZE": str(spec.processes_per_node),
            "HOROVOD_CROSS_RANK": str(node),
            "HOROVOD_CROSS_SIZE": str(spec.nodes),
            # Horovod's key for who shares a host: our nodes do not, though the machine is one.
            "HOROVOD_HOSTNAME": f"node-{node}",
        }
    if spec.launcher != "tensorflow":
        return RankRequest(rank=rank, node=node, local_rank=local_rank, env=env)
    # With a chief the workers serve it, and it alone says when the training is over.
    is_chief = spec.chief and rank == 0
    return RankRequest(
        rank=rank,
        node=node,
        local_rank=local_rank,
        env=env,
        task=("chief", 0) if is_chief else ("worker", rank - spec.chief),
        awaited=is_chief or not spec.chief,
    )


def _server_request(spec: JobSpec, index: int) -> RankRequest:
    """Place a parameter server: numbered after the ranks, dealt to the nodes in turn."""
    node, local_rank = index % spec.nodes, spec.processes_per_node + index // spec.nodes
    rank = spec.world_size + index
    env = {
        "RANK": str(rank),
        "WORLD_SIZE": str(spec.world_size),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(spec.processes_per_node),
        "NODE_RANK": str(node),
        # Variables are kept in memory; a server that saw a GPU would take all of it.
        "CUDA_VISIBLE_DEVICES": "-1",
    }
    return RankRequest(
        rank=rank, node=node, local_rank=local_rank, env=env, task=("ps", index), awaited=False
    )


def mpirun_argv(world_size: int) -> tuple[str, ...]:
    """Start all ranks by Open MPI, which inherits the environment: none of it is in the argv."""
    # btl self,sm: shared memory only, so that no rank listens on the network.
    return (
        *("mpirun", "-np", str(world_size), "--bind-to", "none", "--map-by", ":OVERSUBSCRIBE"),
        *("--mca", "btl", "self,sm", "--mca", "pml", "ob1"),
        *RANK_ARGV,
    )


# --- When the gang starts --------------------------------------------------------------------


def rendezvous_environment(launcher: Launcher, port: int) -> dict[str, str]:
    """Give the variables of a launcher's rendezvous; only Horovod's name the port."""
    if launcher == "horovod":
        return {
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": LOOPBACK,
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
        }
    if launcher == "mpi":
        return {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {}


def tensorflow_environments(
    ranks: Sequence[RankRequest], ports: Sequence[int]
) -> dict[int, dict[str, str]]:
    """Give each rank's own variables: `TF_CONFIG`, and the port that is held for it."""
    tasks = [
        (rank.rank, *rank.task, port) for rank, port in zip(ranks, ports, strict=True) if rank.task
    ]
    cluster: dict[str, list[str]] = {}
    for _, kind, _, port in tasks:
        cluster.setdefault(kind, []).append(f"{LOOPBACK}:{port}")
    return {
        rank: {
            "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}}),
            "TRAINYARD_HELD_PORT": str(port),
        }
        for rank, kind, index, port in tasks
    }


def share_cpus(
    allowed: Sequence[int],
    *,
    cpus_per_node: int,
    nodes: Sequence[int],
    processes_per_node: int,
    num_servers: int = 0,
) -> list[list[int]]:
    """Deal the cores of the claimed nodes to the ranks: contiguous, disjoint, as equal as it goes.

    `nodes` are the claimed places in the cluster; each owns `cpus_per_node` of the allowed cores,
    wrapping round where the cluster promises more than the machine has. With fewer cores than
    ranks each rank gets one, in turn. Each of `num_servers` that come after the ranks may use all.
    """
    owned = (node * cpus_per_node + core for node in nodes for core in range(cpus_per_node))
    cores = list(dict.fromkeys(allowed[index % len(allowed)] for index in owned))
    num_ranks = len(nodes) * processes_per_node
    servers = [cores] * num_servers
    if len(cores) < num_ranks:
        return [*([cores[rank % len(cores)]] for rank in range(num_ranks)), *servers]
    bounds = [rank * len(cores) // num_ranks for rank in range(num_ranks + 1)]
    return [*(cores[low:high] for low, high in pairwise(bounds)), *servers]


def are_gpus_shared(gpus: Sequence[str], capacity_nodes: int) -> bool:
    """Tell whether each node has GPUs of its own; else every node may see all."""
    return 1 < capacity_nodes <= len(gpus)


def share_gpus(
    gpus: Sequence[str], *, nodes: Sequence[int], capacity_nodes: int
) -> list[str] | None:
    """Give each claimed node its `CUDA_VISIBLE_DEVICES`; None if every node may see all.

    The nodes are one machine, and share evenly the GPUs that the shell shows (infra/local/machine.py):
    otherwise the first local rank of each, and of each run, would take the first.
    """
    if not are_gpus_shared(gpus, capacity_nodes):
        return None
    size = len(gpus) // capacity_nodes
    return [",".join(gpus[node * size : (node + 1) * size]) for node in nodes]
