"""What a job asks of the nodes, and which processes that makes: pure."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

from tests.fakes.azureml.records import Place
from tests.fakes.deviations import Deviation


@dataclass(frozen=True, kw_only=True)
class Link:
    """A folder (or file) in the storage, and how a job sees it."""

    account: str
    container: str
    path: str
    uri: str
    mode: str = "Download"
    is_file: bool = False


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How many processes, and who tells them who they are; none: one process without a rank."""

    kind: Literal["none", "Mpi", "PyTorch", "TensorFlow"] = "none"
    num_processes: int = 1
    num_servers: int = 0


@dataclass(frozen=True, kw_only=True)
class Spec:
    """A job as the runner needs it; `image` is the environment's id where one is built.

    `is_user`: it has its sender's tokens and not its cluster's ("User identity and compute managed
    identity can't be used for authentication within same job", ai-docs,
    how-to-identity-based-service-authentication, 2025-06-10).
    """

    command: str
    code: Link | None
    image: str
    build: Link | None
    cluster: str
    num_nodes: int
    launch: Launch
    env: dict[str, str]
    inputs: dict[str, Link | str]
    outputs: dict[str, Link]
    timeout_s: float | None
    is_user: bool = False


@dataclass(frozen=True, kw_only=True)
class Process:
    """One process: on which node, into which log, with what besides the node's environment."""

    node: int
    log: str
    env: dict[str, str] = field(default_factory=dict)
    must_end: bool = True  # a parameter server is ended when the workers are through


def processes_of(
    spec: Spec,
    *,
    port: int,
    ports: list[int],
    padding: int,
    deviations: Collection[Deviation] = (),
) -> list[Process]:
    """The processes of a job; all nodes are at 127.0.0.1, so `ports` part TensorFlow's tasks."""
    launch = spec.launch
    if launch.kind == "none":
        return [Process(node=0, log="user_logs/std_log.txt")]
    if launch.kind == "TensorFlow":
        return list(_tensorflow(spec, ports))
    per_node = max(1, launch.num_processes // spec.num_nodes)
    made = []
    for rank in range(launch.num_processes):
        node, local_rank = divmod(rank, per_node)
        if launch.kind == "Mpi" and Deviation.RANKS_IN_TURN in deviations:
            local_rank, node = divmod(rank, spec.num_nodes)
        log = f"user_logs/std_log_process_{rank:0{padding}}.txt"
        env = {
            "AZ_BATCH_IS_CURRENT_NODE_MASTER": "true" if node == 0 else "false",
            "AZ_BATCHAI_TASK_INDEX": str(node),
        }
        if launch.kind == "Mpi":
            # What mpirun cannot know: here all nodes are one machine.
            env |= {
                "OMPI_COMM_WORLD_LOCAL_RANK": str(local_rank),
                "OMPI_COMM_WORLD_LOCAL_SIZE": str(per_node),
                "OMPI_COMM_WORLD_NODE_RANK": str(local_rank),
            }
        else:
            env |= {
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "RANK": str(rank),
                "WORLD_SIZE": str(launch.num_processes),
                "LOCAL_RANK": str(local_rank),
                "NODE_RANK": str(node),
            }
        made.append(Process(node=node, log=log, env=env))
    return made


def _tensorflow(spec: Spec, ports: list[int]) -> list[Process]:
    """Workers and parameter servers, each of them dealt over the nodes."""
    addresses = [f"127.0.0.1:{port}" for port in ports]
    num_workers = spec.launch.num_processes
    cluster = {"worker": addresses[:num_workers]}
    if spec.launch.num_servers:
        cluster["ps"] = addresses[num_workers : num_workers + spec.launch.num_servers]
    made = []
    for role, members in cluster.items():
        for index in range(len(members)):
            config = {
                "cluster": cluster,
                "task": {"type": role, "index": index},
                "environment": "cloud",
            }
            made.append(
                Process(
                    node=index % spec.num_nodes,
                    log=f"user_logs/std_log_node_{index:02}_{role}.txt",
                    env={"TF_CONFIG": json.dumps(config)},
                    must_end=role == "worker",
                )
            )
    return made


def job_environment(place: Place, spec: Spec, *, run: str, experiment: str) -> dict[str, str]:
    """What Azure ML sets for every process of a job (names as seen in jobs' logs and SDKs)."""
    master = "127.0.0.1"
    nodes = ";".join([master] * spec.num_nodes)
    return {
        "AZUREML_RUN_ID": run,
        "AZUREML_ARM_SUBSCRIPTION": place.subscription_id,
        "AZUREML_ARM_RESOURCEGROUP": place.resource_group,
        "AZUREML_ARM_WORKSPACE_NAME": place.workspace,
        "AZUREML_ARM_PROJECT_NAME": experiment,
        "AZUREML_WORKSPACE_ID": place.workspace_guid,
        "AZUREML_WORKSPACE_SCOPE": place.workspace_id,
        "AZUREML_SERVICE_ENDPOINT": f"https://{place.api}",
        "AZUREML_DISCOVERY_SERVICE_ENDPOINT": f"https://{place.api}/discovery",
        "AZUREML_COMPUTE_USE_COMMON_RUNTIME": "true",
        "AZUREML_NODE_COUNT": str(spec.num_nodes),
        "MLFLOW_TRACKING_URI": f"azureml://{place.api}/mlflow/v1.0{place.workspace_id}",
        "MLFLOW_RUN_ID": run,
        "AZ_BATCH_NODE_LIST": nodes,
        "AZ_BATCH_HOST_LIST": nodes.replace(";", ","),
        "AZ_BATCH_MASTER_NODE": f"{master}:6000",
        "AZ_BATCHAI_MPI_MASTER_NODE": master,
        "AZ_BATCHAI_JOB_MASTER_NODE_IP": master,
        **({} if spec.is_user else {"DEFAULT_IDENTITY_CLIENT_ID": place.cluster_client_id}),
    }
