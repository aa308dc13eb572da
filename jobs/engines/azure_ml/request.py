"""A job as Azure ML takes it: the exact bodies that are sent, as data, without Azure.

Pure, but that an image which the workspace is to build (dev) is read for its name.

https://learn.microsoft.com/rest/api/azureml/jobs/create-or-update
"""

from __future__ import annotations

from typing import Any

from jobs.contracts.spec import Environment, InputSpec, JobLimits, JobSpec, Limits, Plan
from jobs.datasets.asset import datastore_path, datastore_uri
from jobs.engines.azure_ml.image_versions import version_for
from jobs.engines.azure_ml.node_job import CHECKPOINTS_OUTPUT, environment_variables, node_command
from jobs.host.units import iso_duration
from jobs.jobfile.resolve import hang_s

# The last one that knows of a job's priority.
JOB_API_VERSION = "2024-04-01-preview"
# By this one a workspace's other jobs are told from ours.
MARK = ("trainyard", "1")
# Stand in a plan for what is known only when it is submitted.
RUN, CODE = "<RUN>", "<CODE>"
CODE_VERSION = "1"
_MODES = {"mount": "ReadOnlyMount", "download": "Download"}
_PRIORITIES = {"low": 1, "normal": 2, "high": 3}


def plan_job(spec: JobSpec, environment: Environment) -> Plan:
    """The plan of a job; its request has RUN and CODE where the run's id and the code's go."""
    return Plan(
        engine="azureml",
        spec=spec,
        request=run_request(spec, environment, run=RUN, code=CODE),
        notes=_notes(spec, environment),
    )


def run_request(spec: JobSpec, environment: Environment, *, run: str, code: str) -> dict[str, Any]:
    """The two requests that make a run: its image's version, and the job itself."""
    workspace = environment.workspace.id
    image = version_for(spec, environment)
    return {
        "environment": {"path": image.path(workspace), "body": image.body},
        "job": job_request(
            spec,
            environment,
            run=run,
            code_id=code_path(workspace, code),
            image_id=image.path(workspace),
            command=node_command(spec, code),
        ),
    }


def job_request(
    spec: JobSpec,
    environment: Environment,
    *,
    run: str,
    code_id: str,
    image_id: str,
    command: str,
    attempt: int = 1,
) -> dict[str, Any]:
    """The request that makes one attempt of a run; `command` is the one that the code was sent for."""
    workspace = environment.workspace.id
    properties: dict[str, Any] = {
        "jobType": "Command",
        "displayName": spec.name,
        "experimentName": spec.experiment or spec.name,
        "isArchived": False,
        "tags": {**spec.tags, MARK[0]: MARK[1]},
        "properties": {
            "trainyard.run": run,
            "trainyard.attempt": str(attempt),
            "trainyard.stack": spec.stack,
            "trainyard.cluster": spec.cluster,
            "trainyard.processes_per_node": str(spec.processes_per_node),
        },
        "command": command,
        "codeId": code_id,
        "environmentId": image_id,
        "environmentVariables": environment_variables(spec, environment, run=run, attempt=attempt),
        "computeId": f"{workspace}/computes/{spec.compute}",
        "resources": _resources(spec),
        "inputs": {
            name: _input(each, environment)
            for name, each in spec.inputs.items()
            if each.mode in _MODES
        },
        "outputs": {CHECKPOINTS_OUTPUT: _checkpoints(environment, run)},
        **_optional(spec),
    }
    return {
        "path": f"{workspace}/jobs/{job_name(run, attempt)}",
        "api_version": JOB_API_VERSION,
        "body": {"properties": properties},
    }


def job_name(run: str, attempt: int = 1) -> str:
    """What Azure ML calls an attempt; its names have no dots."""
    return run if attempt == 1 else f"{run}_{attempt}"


def run_of_job(name: str) -> tuple[str, int]:
    """The run and the attempt that a job of ours is."""
    run, _, attempt = name.partition("_")
    return run, int(attempt or 1)


def checkpoints_prefix(run: str) -> str:
    """Where a run's checkpoints lie in the container `runs`; the store's rules know this folder."""
    return f"checkpoints/{run}/"


def code_path(workspace: str, code: str) -> str:
    """Where Azure ML keeps an upload of code."""
    return f"{workspace}/codes/{code}/versions/{CODE_VERSION}"


def _optional(spec: JobSpec) -> dict[str, Any]:
    """What is left out where the job does not ask for it."""
    found: dict[str, Any] = {}
    distribution = _distribution(spec)
    if distribution is not None:
        found["distribution"] = distribution
    if spec.limits.wall_clock_s is not None:
        timeout = iso_duration(spec.limits.wall_clock_s)
        found["limits"] = {"jobLimitsType": "Command", "timeout": timeout}
    if spec.priority != "normal":
        found["queueSettings"] = {"priority": _PRIORITIES[spec.priority]}
    return found


def _distribution(spec: JobSpec) -> dict[str, Any] | None:
    """How Azure ML starts the ranks."""
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
    return None


def _resources(spec: JobSpec) -> dict[str, Any]:
    resources: dict[str, Any] = {"instanceCount": spec.nodes}
    if spec.shm_size is not None:
        resources["shmSize"] = spec.shm_size
    return resources


def _input(given: InputSpec, environment: Environment) -> dict[str, Any]:
    """By place, not by data asset: content is there for good, an asset may be archived."""
    return {
        "jobInputType": "uri_folder",
        "uri": datastore_uri(given.dataset, environment),
        "mode": _MODES[given.mode],
    }


def _checkpoints(environment: Environment, run: str) -> dict[str, Any]:
    """Mounted: what an attempt has saved is there when the next one begins."""
    uri = datastore_path(environment, environment.storage.containers.runs, checkpoints_prefix(run))
    return {"jobOutputType": "uri_folder", "uri": uri, "mode": "ReadWriteMount"}


def _notes(spec: JobSpec, environment: Environment) -> tuple[str, ...]:
    notes: list[str] = []
    if spec.priority != "normal":
        notes.append("whether a cluster of Azure ML heeds a job's priority is not documented")
    if spec.parameter_servers > spec.nodes:
        told = f"{spec.parameter_servers} parameter servers share {spec.nodes}"
        notes.append(f"{told} node{'s' if spec.nodes > 1 else ''}")
    if spec.launcher == "tensorflow" and spec.processes_per_node > 1:
        # "Number of workers. If not specified, will default to the instance count" is all that is said:
        # https://learn.microsoft.com/rest/api/azureml/jobs/create-or-update#tensorflow
        notes.append(
            "whether Azure ML starts several workers of TensorFlow on a node is not documented; "
            "--processes-per-node 1 is"
        )
    cluster = environment.clusters[spec.cluster]
    if cluster.priority == "low_priority" and not spec.retry.max:
        notes.append("nodes of this cluster are taken away at any time; `retry` starts again")
    return (*notes, *hang_notes(spec.limits))


def hang_notes(limits: Limits) -> list[str]:
    """What becomes of a `limits.hang` that was given."""
    if limits.hang_s in (None, hang_s(JobLimits())):
        return []
    note = "Azure ML does not watch `hang`: only a limit of time (`wall_clock`, `cost`) ends what hangs"
    return [note if limits.wall_clock_s else f"{note}, and none is set"]
