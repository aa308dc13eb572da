"""A job as azureml-core's RunConfiguration: the whole of what is sent, as data (pure, without Azure).

https://learn.microsoft.com/python/api/azureml-core/azureml.core.runconfig.runconfiguration
"""

from __future__ import annotations

import math
import re
import shlex
from typing import Any

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import Environment, InputSpec, JobSpec, Plan
from jobs.engines.azure_ml.image_versions import image_version, is_reference
from jobs.engines.azure_ml.node_job import CHECKPOINTS_OUTPUT, environment_variables, node_command
from jobs.engines.azure_ml.request import CODE, MARK, RUN, checkpoints_prefix, hang_notes

ENGINE = "azureml_v1"
# What azureml-core sends where no limit is set: 30 days.
LONGEST_S = 2592000
_PLACE = re.compile(r"\$\{\{(inputs|outputs)\.(\w+)\}\}")
_PLACEHOLDERS = {"inputs": "DatasetConsumptionConfig", "outputs": "DatasetOutputConfig"}
_SHM_SIZE = "2g"


def plan_run(spec: JobSpec, environment: Environment) -> Plan:
    """The plan of a job; its request has RUN and CODE where the run's id and the code's go. Raises LaunchError."""
    if not is_reference(spec.image):
        message = f"image `{spec.image}` is in no registry, and azureml_v1 builds none"
        raise LaunchError(message, hint=f"launch image push {spec.image}, or the engine azureml")
    if spec.launcher == "tensorflow" and spec.processes_per_node > 1:
        message = "azureml-core starts each worker of TensorFlow on a node of its own"
        hint = f"--nodes {spec.world_size} --set processes_per_node=1, or the engine azureml"
        raise LaunchError(message, hint=hint)
    request = v1_request(spec, environment, run=RUN, code=CODE)
    return Plan(engine=ENGINE, spec=spec, request=request, notes=_notes(spec))


def v1_request(spec: JobSpec, environment: Environment, *, run: str, code: str) -> dict[str, Any]:
    """What makes a run: its id, its experiment, its tags and its run configuration."""
    return {
        "run_id": run,
        "experiment": spec.experiment or spec.name,
        "tags": {**spec.tags, MARK[0]: MARK[1]},
        "configuration": _configuration(spec, environment, run, code),
    }


def _configuration(spec: JobSpec, environment: Environment, run: str, code: str) -> dict[str, Any]:
    launch = _launch(spec, environment.clusters[spec.cluster].gpus_per_node)
    lasts_s = spec.limits.wall_clock_s
    return {
        **_DEFAULTS,
        **launch,
        "target": spec.compute,
        "maxRunDurationSeconds": LONGEST_S if lasts_s is None else max(1, math.ceil(lasts_s)),
        "environment": _image(spec.image),
        "docker": {
            "useDocker": True,
            "sharedVolumes": True,
            "arguments": [],
            "shmSize": spec.shm_size or _SHM_SIZE,
        },
        "data": {
            name: _input(name, each, environment)
            for name, each in spec.inputs.items()
            if each.mode != "stream"
        },
        "outputData": {CHECKPOINTS_OUTPUT: _checkpoints(environment, run)},
        "command": _command(spec, code),
        "environmentVariables": environment_variables(spec, environment, run=run, attempt=1),
    }


def _launch(spec: JobSpec, gpus_per_node: int) -> dict[str, Any]:
    """How Azure ML starts the ranks, as ScriptRunConfig's `distributed_job_config` says it."""
    nodes, per_node = spec.nodes, spec.processes_per_node
    if spec.launcher in {"horovod", "mpi"}:
        return {
            "communicator": "IntelMpi",
            "nodeCount": nodes,
            "mpi": {"processCountPerNode": per_node, "nodeCount": nodes},
        }
    if spec.launcher == "tensorflow":
        servers = spec.parameter_servers
        return {
            "framework": "TensorFlow",
            "communicator": "ParameterServer",
            "nodeCount": spec.world_size,
            "tensorflow": {"workerCount": spec.world_size, "parameterServerCount": servers},
        }
    if spec.launcher == "torch" or spec.world_size > 1:
        backend = "nccl" if gpus_per_node else "gloo"
        return {
            "framework": "PyTorch",
            "communicator": backend,
            "nodeCount": nodes,
            "pytorch": {
                "communicationBackend": backend,
                "processCount": spec.world_size,
                "nodeCount": nodes,
            },
        }
    return {}


def _command(spec: JobSpec, code: str) -> str:
    """The node's command; the words that Azure ML replaces by paths stand by themselves."""
    words: list[str] = []

    def place(found: re.Match[str]) -> str:
        words.append(f"{_PLACEHOLDERS[found[1]]}:{found[2]}")
        return f"${{{len(words) - 1}}}"

    command = _PLACE.sub(place, node_command(spec, code))
    return " ".join(["sh", "-c", shlex.quote(f"exec {command}"), *words])


def _input(name: str, given: InputSpec, environment: Environment) -> dict[str, Any]:
    path = given.dataset.content_prefix
    return {
        "dataLocation": _location(environment, environment.storage.containers.data, path),
        "createOutputDirectories": False,
        "mechanism": given.mode,
        "environmentVariableName": name,
        "pathOnCompute": None,
        "overwrite": False,
        "options": None,
    }


def _checkpoints(environment: Environment, run: str) -> dict[str, Any]:
    """Mounted, as azureml-core's OutputFileDatasetConfig says it."""
    container = environment.storage.containers.runs
    return {
        "outputLocation": _location(environment, container, checkpoints_prefix(run)),
        "mechanism": "mount",
        "additionalOptions": {
            "pathOnCompute": None,
            "registrationOptions": {
                "name": None,
                "description": None,
                "tags": None,
                "datasetRegistrationOptions": {"additionalTransformation": None},
            },
            "uploadOptions": None,
            "mountOptions": {"disableMetadataCache": False},
        },
    }


def _location(environment: Environment, container: str, path: str) -> dict[str, Any]:
    store = environment.storage.datastore(container)
    return {
        "dataset": None,
        "dataPath": {"datastoreName": store, "relativePath": path},
        "uri": None,
    }


def _image(reference: str) -> dict[str, Any]:
    """The image as it is: with dependencies of its own nothing is built on top of it."""
    return {
        "name": image_version(reference).name,
        "version": None,
        "environmentVariables": {},
        "python": {
            "userManagedDependencies": True,
            "interpreterPath": "python",
            "condaDependenciesFile": None,
            "baseCondaEnvironment": None,
            # Unused then, and always there.
            "condaDependencies": {
                "name": "project_environment",
                "dependencies": ["python=3.8.13", {"pip": ["azureml-defaults"]}],
                "channels": ["anaconda", "conda-forge"],
            },
        },
        "docker": {
            "enabled": False,
            "baseImage": reference,
            "baseDockerfile": None,
            "buildContext": None,
            "sharedVolumes": True,
            "shmSize": _SHM_SIZE,
            "arguments": [],
            "baseImageRegistry": {
                "address": None,
                "username": None,
                "password": None,
                "registryIdentity": None,
            },
            "platform": {"os": "Linux", "architecture": "amd64"},
        },
        "spark": {"repositories": [], "packages": [], "precachePackages": True},
        "databricks": {
            "mavenLibraries": [],
            "pypiLibraries": [],
            "rcranLibraries": [],
            "jarLibraries": [],
            "eggLibraries": [],
        },
        "r": None,
        "inferencingStackVersion": None,
        "assetId": None,
    }


def _notes(spec: JobSpec) -> tuple[str, ...]:
    notes = [
        "Microsoft's support of azureml-core ended on 2026-06-30; the engine azureml does the same"
    ]
    if spec.retry.max:
        notes.append("`retry` has no effect: the engine azureml starts a preempted run again")
    if spec.priority != "normal":
        notes.append("`priority` has no effect with azureml-core")
    return (*notes, *hang_notes(spec.limits))


# What the rest of a RunConfiguration of azureml-core 1.61 is where nobody sets it.
_DEFAULTS: dict[str, Any] = {
    "script": None,
    "arguments": [],
    "framework": "Python",
    "communicator": "None",
    "nodeCount": 1,
    "priority": None,
    "history": {
        "outputCollection": True,
        "snapshotProject": True,
        "directoriesToWatch": ["logs"],
    },
    "spark": {
        "configuration": {
            "spark.app.name": "Azure ML Experiment",
            "spark.yarn.maxAppAttempts": 1,
        }
    },
    "hdi": {"yarnDeployMode": "cluster"},
    "tensorflow": {"workerCount": 1, "parameterServerCount": 1},
    "mpi": {"processCountPerNode": 1, "nodeCount": 1},
    "pytorch": {"communicationBackend": "nccl", "processCount": None, "nodeCount": 1},
    "paralleltask": {
        "maxRetriesPerWorker": 0,
        "workerCountPerNode": 1,
        "terminalExitCodes": None,
    },
    "dataReferences": {},
    "datacaches": [],
    "sourceDirectoryDataStore": None,
    "amlcompute": {
        "vmSize": None,
        "vmPriority": None,
        "retainCluster": False,
        "name": None,
        "clusterMaxNodeCount": None,
    },
    "autoClusterComputeSpecification": None,
    "kubernetescompute": {"instanceType": None},
    "credentialPassthrough": False,
    "applicationEndpoints": {},
}
