"""Make the exact bodies that Azure ML is sent for a job, as data, without Azure.

Pure, but that an image which the workspace is to build (dev) is read for its name.

https://learn.microsoft.com/rest/api/azureml/jobs/create-or-update
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from jobs.contracts.spec import Environment, InputSpec, JobSpec, Limits, Plan
from jobs.engines.azure_ml.data_assets import datastore_path, datastore_uri
from jobs.engines.azure_ml.fabric import fabric_notes
from jobs.engines.azure_ml.image_versions import version_for
from jobs.engines.azure_ml.names import CODE, MARK, RUN, checkpoints_prefix, code_path, job_name
from jobs.engines.azure_ml.node_job import CHECKPOINTS_OUTPUT, environment_variables, node_command
from jobs.host.structs import prepared
from jobs.host.units import iso_duration

# The last one that knows of a job's priority.
JOB_API_VERSION = "2024-04-01-preview"
_MODES = {"mount": "ReadOnlyMount", "download": "Download"}
_PRIORITIES = {"low": 1, "normal": 2, "high": 3}
# Said in every body: the REST default is a token of the workspace, which opens no datastore of ours.
_MANAGED, _USER = {"identityType": "Managed"}, {"identityType": "UserIdentity"}


class ImageRequest(Struct, frozen=True, kw_only=True):
    """Request that makes an image's version known; `body` is `ImageVersion.body`."""

    path: str
    body: dict[str, Any]


class Resources(Struct, frozen=True, kw_only=True, rename="camel"):
    """Nodes of a job, and the size of /dev/shm on each."""

    instance_count: int
    shm_size: str | UnsetType = UNSET


class JobFolder(Struct, frozen=True, kw_only=True, rename="camel"):
    """Input or output of a job: a folder of a datastore."""

    job_input_type: str | UnsetType = UNSET
    job_output_type: str | UnsetType = UNSET
    uri: str
    mode: str


class JobProperties(Struct, frozen=True, kw_only=True, rename="camel"):
    """Command job in the words of Azure ML; what is UNSET is not sent."""

    job_type: str = "Command"
    display_name: str
    experiment_name: str
    is_archived: bool = False
    tags: dict[str, str]
    properties: dict[str, str]
    command: str
    code_id: str
    environment_id: str
    environment_variables: dict[str, str]
    compute_id: str
    identity: dict[str, str] | UnsetType = UNSET
    resources: Resources
    inputs: dict[str, JobFolder]
    outputs: dict[str, JobFolder]
    distribution: dict[str, str | int] | UnsetType = UNSET
    limits: dict[str, str] | UnsetType = UNSET
    queue_settings: dict[str, int] | UnsetType = UNSET


class JobBody(Struct, frozen=True, kw_only=True):
    """Body of the PUT that makes a job."""

    properties: JobProperties


class JobRequest(Struct, frozen=True, kw_only=True):
    """Request that makes one attempt of a run."""

    path: str
    api_version: str
    body: JobBody


class AzureMLRequest(Struct, frozen=True, kw_only=True):
    """Requests that make a run: its image's version, then the job itself."""

    environment: ImageRequest
    job: JobRequest


def read_request(plan: Plan) -> AzureMLRequest:
    """Decode the request of a plan of the engine azureml."""
    return msgspec.json.decode(plan.request, type=prepared(AzureMLRequest))


def plan_job(spec: JobSpec, environment: Environment) -> Plan:
    """Plan a job; its request has RUN and CODE where the run's id and the code's go."""
    request = run_request(spec, environment, run=RUN, code=CODE)
    return Plan(
        engine="azureml",
        spec=spec,
        request=Raw(msgspec.json.encode(request)),
        notes=_notes(spec, environment),
    )


def run_request(spec: JobSpec, environment: Environment, *, run: str, code: str) -> AzureMLRequest:
    """Give the two requests that make a run, under the run's id and the name of its code."""
    workspace = environment.workspace.id
    image = version_for(spec, environment)
    return AzureMLRequest(
        environment=ImageRequest(path=image.path(workspace), body=image.body),
        job=job_request(
            spec,
            environment,
            run=run,
            code_id=code_path(workspace, code),
            image_id=image.path(workspace),
            command=node_command(spec, code),
        ),
    )


def job_request(
    spec: JobSpec,
    environment: Environment,
    *,
    run: str,
    code_id: str,
    image_id: str,
    command: str,
    attempt: int = 1,
) -> JobRequest:
    """Give the request of one attempt of a run; `command` is the one that the code was sent for."""
    workspace = environment.workspace.id
    limit_s = spec.limits.wall_clock_s
    timeout = UNSET if limit_s is None else iso_duration(limit_s)
    properties = JobProperties(
        display_name=spec.name,
        experiment_name=spec.experiment or spec.name,
        tags={**spec.tags, MARK[0]: MARK[1]},
        properties={
            "trainyard.run": run,
            "trainyard.attempt": str(attempt),
            "trainyard.stack": spec.stack,
            "trainyard.cluster": spec.cluster,
            "trainyard.processes_per_node": str(spec.processes_per_node),
        },
        command=command,
        code_id=code_id,
        environment_id=image_id,
        environment_variables=environment_variables(spec, environment, run=run, attempt=attempt),
        compute_id=f"{workspace}/computes/{spec.compute}",
        identity=_USER if spec.identity == "user" else _MANAGED,
        resources=Resources(
            instance_count=spec.nodes, shm_size=UNSET if spec.shm_size is None else spec.shm_size
        ),
        inputs={
            name: _input(each, environment)
            for name, each in spec.inputs.items()
            if each.mode in _MODES
        },
        outputs={CHECKPOINTS_OUTPUT: _checkpoints(environment, run)},
        distribution=_distribution(spec),
        limits=UNSET if timeout is UNSET else {"jobLimitsType": "Command", "timeout": timeout},
        queue_settings=UNSET
        if spec.priority == "normal"
        else {"priority": _PRIORITIES[spec.priority]},
    )
    return JobRequest(
        path=f"{workspace}/jobs/{job_name(run, attempt)}",
        api_version=JOB_API_VERSION,
        body=JobBody(properties=properties),
    )


def _distribution(spec: JobSpec) -> dict[str, str | int] | UnsetType:
    """Say how Azure ML starts the ranks."""
    per_node = spec.processes_per_node
    if spec.launcher in {"horovod", "mpi"}:
        return {"distributionType": "Mpi", "processCountPerInstance": per_node}
    if spec.launcher == "tensorflow":
        servers = spec.parameter_servers
        counts = {"workerCount": spec.world_size, "parameterServerCount": servers}
        return {"distributionType": "TensorFlow", **counts}
    if spec.launcher == "torch" or spec.world_size > 1:
        # Starts the command once a rank, and says in its environment which one it is; so it
        # serves those who have no launcher, too.
        return {"distributionType": "PyTorch", "processCountPerInstance": per_node}
    return UNSET


def _input(given: InputSpec, environment: Environment) -> JobFolder:
    """Name an input by its place, not by data asset: an asset may be archived."""
    uri = datastore_uri(given.dataset, environment)
    return JobFolder(job_input_type="uri_folder", uri=uri, mode=_MODES[given.mode])


def _checkpoints(environment: Environment, run: str) -> JobFolder:
    """Mount the checkpoints, so that each attempt finds what the one before saved."""
    uri = datastore_path(environment, environment.storage.containers.runs, checkpoints_prefix(run))
    return JobFolder(job_output_type="uri_folder", uri=uri, mode="ReadWriteMount")


def _notes(spec: JobSpec, environment: Environment) -> tuple[str, ...]:
    notes: list[str] = []
    if spec.identity == "user":
        reads = "data, results and secrets" if spec.secrets else "data and results"
        notes.append(f"the job reaches {reads} as you, with your roles alone; logs name you")
    if spec.priority != "normal":
        notes.append("Azure ML does not document the effect of a job's priority on a cluster")
    if spec.parameter_servers > spec.nodes:
        told = f"{spec.parameter_servers} parameter servers share {spec.nodes}"
        notes.append(f"{told} node{'s' if spec.nodes > 1 else ''}")
    if spec.launcher == "tensorflow" and spec.processes_per_node > 1:
        # "Number of workers. If not specified, will default to the instance count" is all that is said:
        # https://learn.microsoft.com/rest/api/azureml/jobs/create-or-update#tensorflow
        notes.append(
            "Azure ML does not document several TensorFlow workers on one node; "
            "--processes-per-node 1 is"
        )
    cluster = environment.clusters[spec.cluster]
    if cluster.priority == "low_priority" and not spec.retry.max:
        notes.append("Azure may take nodes of this cluster away at any time; `retry` starts again")
    return (*notes, *hang_notes(spec.limits), *fabric_notes(spec, environment))


def hang_notes(limits: Limits) -> list[str]:
    """Note that nothing ends a run that hangs, where the job wants it so."""
    if limits.hang_s is not None or limits.wall_clock_s is not None:
        return []
    return ["nothing ends a run that hangs: `limits.hang` is off, and no limit of time is set"]
