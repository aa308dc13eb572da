"""Tells a rank's place from whatever started it, and makes its command's environment.

It maps the variables of our gang, torchrun, Open MPI, Intel MPI, Azure ML and Batch AI to those of
docs/run-directory.md.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from jobs.rank.flight import flight_environment

DEFAULT_MASTER_PORT = "6105"  # the one that Azure ML's own guide uses


class World(NamedTuple):
    """One rank's place among the others."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    node: int
    master_addr: str
    master_port: str


class RankJob(NamedTuple):
    """RANK.json: what the ranks of a run share; no secret's value.

    `filled` names the variables whose values hold placeholders. `path` are the folders of programs
    below the interpreter's own. `requirements` is a file of the code that is installed on the node;
    `pip` is the folder of a pip for that and for `setup`. `supervisor` is the process that starts the
    ranks, where it does so itself.
    """

    run_dir: str
    command: Sequence[str]
    setup: Sequence[str] = ()
    requirements: str | None = None
    interpreter: str | None = None
    path: Sequence[str] = ()
    pip: str | None = None
    processes_per_node: int | None = None
    checkpoints: str | None = None
    inputs: Mapping[str, str] = MappingProxyType({})
    streams: Sequence[str] = ()
    outputs: Sequence[str] = ()
    secrets: Sequence[str] = ()
    cpus: Sequence[Sequence[int]] | None = None
    gpus: Sequence[str] | None = None
    die_with_parent: bool = False
    supervisor: int | None = None
    leave_together: bool = False
    run: str = ""
    filled: Sequence[str] = ()


def map_world(environ: dict[str, str], processes_per_node: int | None = None) -> World:
    """Read the world from the variables of whatever started this process.

    With `processes_per_node` ranks are dealt to nodes in that number, whatever the launcher
    believes: locally all "nodes" are one machine, and mpirun sees only that machine. A parameter
    server, numbered after the ranks, is where it was told to be.
    """
    rank, size, local_rank, local_size, node = _identity(environ)
    if processes_per_node and rank < size:
        local_size = processes_per_node
        node, local_rank = divmod(rank, processes_per_node)
    batch, _, _ = environ.get("AZ_BATCH_MASTER_NODE", "").partition(":")
    address = environ.get("MASTER_ADDR") or batch or environ.get("AZ_BATCHAI_MPI_MASTER_NODE", "")
    port = environ.get("MASTER_PORT") or DEFAULT_MASTER_PORT
    return World(rank, size, local_rank, local_size, node, address or "127.0.0.1", port)


def _identity(environ: dict[str, str]) -> tuple[int, int, int, int, int]:
    families = (
        ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
        (
            "OMPI_COMM_WORLD_RANK",
            "OMPI_COMM_WORLD_SIZE",
            "OMPI_COMM_WORLD_LOCAL_RANK",
            "OMPI_COMM_WORLD_LOCAL_SIZE",
        ),
        ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    )
    for rank, size, local_rank, local_size in families:
        if rank in environ and size in environ:
            num_ranks = int(environ[size])
            num_nodes = int(environ.get("AZUREML_NODE_COUNT") or 1)
            per_node = int(environ.get(local_size) or max(1, num_ranks // num_nodes))
            mine = int(environ[rank])
            local = int(environ.get(local_rank) or mine % per_node)
            node = environ.get("NODE_RANK") or environ.get("GROUP_RANK") or mine // per_node
            return mine, num_ranks, local, per_node, int(node)
    if "TF_CONFIG" in environ:
        return _task(json.loads(environ["TF_CONFIG"]))
    return 0, 1, 0, 1, 0


def _task(config: dict[str, Any]) -> tuple[int, int, int, int, int]:
    """Number a task of TensorFlow's: the chief, then the workers, then the servers.

    Nodes are told by their addresses, in the order in which the tasks have them.
    """
    cluster, mine = config["cluster"], config["task"]
    order = ("chief", "worker", "ps")
    tasks = [
        (kind, index, address.rpartition(":")[0])
        for kind in order
        for index, address in enumerate(cluster.get(kind, ()))
    ]
    rank = [task[:2] for task in tasks].index((mine["type"], int(mine["index"])))
    hosts = [host for _, _, host in tasks]
    here = [number for number, host in enumerate(hosts) if host == hosts[rank]]
    size = len(tasks) - len(cluster.get("ps", ()))
    local_size = max(1, sum(number < size for number in here))
    return rank, size, here.index(rank), local_size, list(dict.fromkeys(hosts)).index(hosts[rank])


def stream_file(run_dir: str, name: str) -> str:
    """Name the file that says how a streamed input's store is opened: beside the data, not in it."""
    return f"{run_dir}/inputs/{name}.stream.json"


def rank_environment(environ: dict[str, str], world: World, job: RankJob) -> dict[str, str]:
    """Make the environment of the job's command: its own, its rank's place, and the run's paths."""
    run_dir = job.run_dir
    env = dict(environ)
    env.update(
        RANK=str(world.rank),
        WORLD_SIZE=str(world.size),
        LOCAL_RANK=str(world.local_rank),
        LOCAL_WORLD_SIZE=str(world.local_size),
        NODE_RANK=str(world.node),
        MASTER_ADDR=world.master_addr,
        MASTER_PORT=world.master_port,
        TRAINYARD_RUN_DIR=run_dir,
        TRAINYARD_CHECKPOINT_DIR=job.checkpoints or f"{run_dir}/checkpoints",
        PYTHONUNBUFFERED="1",
        PYTHONFAULTHANDLER="1",
    )
    if "TORCHELASTIC_RESTART_COUNT" in env:
        env.setdefault("TORCHELASTIC_RUN_ID", os.path.basename(run_dir))
        env = {**flight_environment(run_dir), **env}
        env.update(_elastic(world))
    for name, path in job.inputs.items():
        env[f"TRAINYARD_INPUT_{name.upper()}"] = path
    for name in job.streams:
        env[f"TRAINYARD_STREAMED_{name.upper()}"] = stream_file(run_dir, name)
    for name in job.outputs:
        env[f"TRAINYARD_OUTPUT_{name.upper()}"] = f"{run_dir}/outputs/{name}"
    cpus = job.cpus
    share = len(cpus[world.rank]) if cpus else (os.cpu_count() or 1) // world.local_size
    env.setdefault("OMP_NUM_THREADS", str(max(1, share)))
    if job.gpus and "CUDA_VISIBLE_DEVICES" not in env:
        # By the second a trainer knows that nobody asked for ranks that share a GPU.
        env["CUDA_VISIBLE_DEVICES"] = env["TRAINYARD_NODE_GPUS"] = job.gpus[world.node]
    if job.interpreter:
        folders = [os.path.dirname(job.interpreter), *job.path, env.get("PATH", "")]
        env["PATH"] = os.pathsep.join(folders)
    return env


def _elastic(world: World) -> dict[str, str]:
    """Give torchrun's other variables of a worker: its node is its group, its role has all ranks."""
    return {
        "GROUP_RANK": str(world.node),
        "GROUP_WORLD_SIZE": str(max(1, world.size // world.local_size)),
        "ROLE_RANK": str(world.rank),
        "ROLE_WORLD_SIZE": str(world.size),
    }
