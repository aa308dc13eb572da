"""Decide what a job sets of azureml-core's RunConfiguration, as data (pure, without Azure).

https://learn.microsoft.com/python/api/azureml-core/azureml.core.runconfig.runconfiguration
"""

from __future__ import annotations

import math
import re
import shlex
from typing import Literal

import msgspec
from msgspec import Raw, Struct

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import Environment, JobSpec, Plan
from jobs.engines.azure_ml.fabric import fabric_notes
from jobs.engines.azure_ml.image_versions import image_version, is_reference
from jobs.engines.azure_ml.names import CODE, MARK, RUN, checkpoints_prefix
from jobs.engines.azure_ml.node_job import CHECKPOINTS_OUTPUT, environment_variables, node_command
from jobs.engines.azure_ml.request import hang_notes
from jobs.host.structs import prepared

ENGINE = "azureml_v1"
# What azureml-core sends where no limit is set: 30 days.
LONGEST_S = 2592000
_PLACE = re.compile(r"\$\{\{(inputs|outputs)\.(\w+)\}\}")
_PLACEHOLDERS = {"inputs": "DatasetConsumptionConfig", "outputs": "DatasetOutputConfig"}
_SHM_SIZE = "2g"


class Distribution(Struct, frozen=True, kw_only=True):
    """Class of azureml.core.runconfig that says how ranks are started, and its arguments."""

    kind: Literal["MpiConfiguration", "PyTorchConfiguration", "TensorflowConfiguration"]
    arguments: tuple[int | str, ...]


class V1Folder(Struct, frozen=True, kw_only=True):
    """Folder of a datastore, and whether it is mounted or downloaded."""

    datastore: str
    path: str
    mechanism: str


class V1Configuration(Struct, frozen=True, kw_only=True):
    """Values that are set of a RunConfiguration; the rest is as azureml-core has it."""

    target: str
    max_run_duration_seconds: int
    image: str
    image_name: str
    shm_size: str
    distribution: Distribution | None
    inputs: dict[str, V1Folder]
    outputs: dict[str, V1Folder]
    command: str
    environment_variables: dict[str, str]


class V1Request(Struct, frozen=True, kw_only=True):
    """Request that makes a run: what worker.py's `do_submit` takes beside the folder."""

    run_id: str
    experiment: str
    tags: dict[str, str]
    configuration: V1Configuration


def plan_run(spec: JobSpec, environment: Environment) -> Plan:
    """Plan a job; its request has RUN and CODE for the run's id and the code's. Raises LaunchError."""
    if not is_reference(spec.image):
        message = f"image `{spec.image}` is in no registry, and azureml_v1 builds no images"
        raise LaunchError(message, hint=f"launch image push {spec.image}, or the engine azureml")
    if spec.launcher == "tensorflow" and spec.processes_per_node > 1:
        message = "azureml-core starts each worker of TensorFlow on a node of its own"
        hint = f"--nodes {spec.world_size} --set processes_per_node=1, or the engine azureml"
        raise LaunchError(message, hint=hint)
    if spec.identity == "user":
        message = "azureml_v1 runs jobs as the cluster's identity, not as `identity: user` wants"
        raise LaunchError(message, hint="the engine azureml, or `identity: managed`")
    request = v1_request(spec, environment, run=RUN, code=CODE)
    encoded = Raw(msgspec.json.encode(request))
    return Plan(engine=ENGINE, spec=spec, request=encoded, notes=_notes(spec, environment))


def read_request(plan: Plan) -> V1Request:
    """Decode the request of a plan of the engine azureml_v1."""
    return msgspec.json.decode(plan.request, type=prepared(V1Request))


def v1_request(spec: JobSpec, environment: Environment, *, run: str, code: str) -> V1Request:
    """Give the request that makes a run, under the run's id and the name of its code."""
    lasts_s, containers = spec.limits.wall_clock_s, environment.storage.containers
    configuration = V1Configuration(
        target=spec.compute,
        max_run_duration_seconds=LONGEST_S if lasts_s is None else max(1, math.ceil(lasts_s)),
        image=spec.image,
        image_name=image_version(spec.image).name,
        shm_size=spec.shm_size or _SHM_SIZE,
        distribution=_distribution(spec, environment.clusters[spec.cluster].gpus_per_node),
        inputs={
            name: V1Folder(
                datastore=environment.storage.datastore(containers.data),
                path=each.dataset.content_prefix,
                mechanism=each.mode,
            )
            for name, each in spec.inputs.items()
            if each.mode != "stream"
        },
        outputs={
            CHECKPOINTS_OUTPUT: V1Folder(
                datastore=environment.storage.datastore(containers.runs),
                path=checkpoints_prefix(run),
                mechanism="mount",
            )
        },
        command=_command(spec, code),
        environment_variables=environment_variables(spec, environment, run=run, attempt=1),
    )
    return V1Request(
        run_id=run,
        experiment=spec.experiment or spec.name,
        tags={**spec.tags, MARK[0]: MARK[1]},
        configuration=configuration,
    )


def _distribution(spec: JobSpec, gpus_per_node: int) -> Distribution | None:
    """Say how Azure ML starts the ranks, as ScriptRunConfig's `distributed_job_config`."""
    nodes, per_node = spec.nodes, spec.processes_per_node
    if spec.launcher in {"horovod", "mpi"}:
        return Distribution(kind="MpiConfiguration", arguments=(per_node, nodes))
    if spec.launcher == "tensorflow":
        counts = (spec.world_size, spec.parameter_servers)
        return Distribution(kind="TensorflowConfiguration", arguments=counts)
    if spec.launcher == "torch" or spec.world_size > 1:
        backend = "Nccl" if gpus_per_node else "Gloo"
        arguments = (backend, spec.world_size, nodes)
        return Distribution(kind="PyTorchConfiguration", arguments=arguments)
    return None


def _command(spec: JobSpec, code: str) -> str:
    """Make the node's command; the words that Azure ML replaces by paths stand by themselves."""
    words: list[str] = []

    def place(found: re.Match[str]) -> str:
        words.append(f"{_PLACEHOLDERS[found[1]]}:{found[2]}")
        return f"${{{len(words) - 1}}}"

    command = _PLACE.sub(place, node_command(spec, code))
    return " ".join(["sh", "-c", shlex.quote(f"exec {command}"), *words])


def _notes(spec: JobSpec, environment: Environment) -> tuple[str, ...]:
    notes = ["Microsoft's support of azureml-core ended on 2026-06-30; use the engine azureml"]
    if spec.retry.max:
        notes.append("`retry` has no effect: the engine azureml starts a preempted run again")
    if spec.priority != "normal":
        notes.append("`priority` has no effect with azureml-core")
    return (*notes, *hang_notes(spec.limits), *fabric_notes(spec, environment))
