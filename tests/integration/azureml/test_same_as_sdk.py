"""The body of a job is what azure-ai-ml itself sends for equivalent YAML; so few differ, and why.

The YAML (sdk_jobs/) is written by hand, as users of the SDK write such a job: nothing of it is made
from our body.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from jobs.contracts.spec import DatasetVersion, Environment, InputSpec, JobRetry, Limits
from jobs.engines.azure_ml.names import CODE, RUN
from jobs.engines.azure_ml.request import run_request
from tests.fakes.azureml import FakeAzure, JobTrouble
from tests.fakes.gangs import make_spec

HERE = Path(__file__).parent
YAML = HERE / "sdk_jobs"
IMAGE = f"registry.azurecr.io/python@sha256:{'a' * 64}"
DIGITS = DatasetVersion(name="digits", version=3, digest="d1", files=2, bytes=10)
LETTERS = DatasetVersion(name="letters", version=1, digest="d2", files=2, bytes=10)
# What a job of `launch` says, by the name of its YAML.
JOBS: dict[str, dict[str, Any]] = {
    "horovod": {
        "launcher": "horovod",
        "nodes": 2,
        "processes_per_node": 2,
        "limits": Limits(wall_clock_s=5400, hang_s=600),
        "shm_size": "8g",
        "inputs": {"train": InputSpec(dataset=DIGITS, mode="mount")},
        "tags": {"team": "vision"},
    },
    "mpi": {"launcher": "mpi", "nodes": 3, "processes_per_node": 1},
    "torch": {
        "launcher": "torch",
        "nodes": 2,
        "experiment": "imagenet",
        "env": {"A": "b c"},
        "inputs": {"train": InputSpec(dataset=DIGITS, mode="download")},
    },
    "tensorflow": {
        "launcher": "tensorflow",
        "nodes": 2,
        "processes_per_node": 1,
        "parameter_servers": 1,
    },
    # A rank 0 that is called chief is one of the workers to Azure ML.
    "chief": {
        "launcher": "tensorflow",
        "nodes": 2,
        "processes_per_node": 2,
        "parameter_servers": 2,
        "chief": True,
        "limits": Limits(wall_clock_s=90, hang_s=None),
    },
    # What `launch` looks after itself is nowhere in the YAML: attempts, results, secrets, set-up.
    "single": {
        "processes_per_node": 1,
        "retry": JobRetry(max=3),
        "outputs": ("model",),
        "secrets": {"TOKEN": "token"},
        "setup": ("pip", "list"),
    },
    "ranks": {"processes_per_node": 4},
    "user": {"processes_per_node": 1, "identity": "user"},
    "low": {
        "processes_per_node": 1,
        "priority": "low",
        "env": {"A": "", "B": "1"},
        "inputs": {
            "train": InputSpec(dataset=DIGITS, mode="mount"),
            "val": InputSpec(dataset=LETTERS, mode="download"),
            # Ranks read a stream themselves: Azure ML knows nothing of it.
            "extra": InputSpec(dataset=LETTERS, mode="stream"),
        },
    },
    "high": {"processes_per_node": 1, "priority": "high"},
}
# The variables that `launch` adds: what starts each rank has to know, and what torchrun and the
# frameworks would be told on a machine of one's own.
OURS = {"TRAINYARD_ATTEMPT", "TRAINYARD_JOB", "TRAINYARD_NODE_SIZE", "TRAINYARD_RUN"}
STALLS = {"HOROVOD_STALL_CHECK_TIME_SECONDS", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"}
THREADS = {"TF_NUM_INTEROP_THREADS"}
ADDED = {
    "horovod": STALLS,
    "mpi": STALLS,
    "torch": {
        "ROLE_NAME",
        "TORCHELASTIC_MAX_RESTARTS",
        "TORCHELASTIC_RESTART_COUNT",
        "TORCHELASTIC_RUN_ID",
        "TORCHELASTIC_USE_AGENT_STORE",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING",
        "TRAINYARD_COLLECTIVE_TIMEOUT_S",
    },
    "tensorflow": THREADS,
    "chief": THREADS,
    "user": {"TRAINYARD_IDENTITY"},
}
# The SDK asks for a later API version than ours, whose models have lost what its YAML still takes;
# ours is the last one that knows it (JOB_API_VERSION).
UNKNOWN = "job: properties.queueSettings.priority: QueueSettings has no such property"


def test_each_body_is_the_one_that_the_sdk_sends_for_yaml_of_the_same_job(
    azure: FakeAzure, sdk_python: Callable[[str], Path], tmp_path: Path
):
    python = sdk_python("azure_ai_ml")
    assert {path.stem for path in YAML.iterdir()} == JOBS.keys()
    azure.script(JobTrouble(what="queued for ever", times=None))
    environment = msgspec.convert(azure.environment(images={"python": IMAGE}), Environment)
    jobs = Path(shutil.copytree(YAML, tmp_path / "jobs"))
    (jobs / "code").mkdir()
    (jobs / "code" / "train.py").write_text("print('hello')")
    bodies = _submit(python, azure, jobs)
    differ = {
        kind: _differences(_ours(kind, environment), bodies[kind], OURS | ADDED.get(kind, set()))
        for kind in JOBS
    }
    assert differ == {kind: {} for kind in JOBS}


def _ours(kind: str, environment: Environment) -> dict[str, Any]:
    spec = make_spec(
        ["python", "train.py"],
        name=f"job-{kind}",
        stack="dev",
        image=IMAGE,
        cluster="cpu",
        compute="cpu-1a2b3c",
        **JOBS[kind],
    )
    body = run_request(spec, environment, run=RUN, code=CODE).job.body
    return msgspec.to_builtins(body.properties)


def _differences(
    ours: dict[str, Any], theirs: dict[str, Any], added: set[str]
) -> dict[str, tuple[Any, Any]]:
    """What is left when all that differs on purpose, each with its reason, is taken out of both."""
    mine, sdk = dict(ours), _less_filled(theirs)
    # Ours are named by content, theirs by a GUID and by their own hash.
    for key, folder in {"codeId": "codes", "environmentId": "environments"}.items():
        assert f"/{folder}/" in mine.pop(key)
        assert f"/{folder}/" in sdk.pop(key)
    # Ours checks the code and starts each rank; what Azure ML fills in is named alike, and the
    # checkpoints' place is handed on, too.
    filled = _filled(sdk.pop("command")) | {"outputs.trainyard_checkpoints"}
    assert _filled(mine.pop("command")) == filled
    # What tells our jobs from a workspace's others.
    mine["tags"] = {key: each for key, each in mine["tags"].items() if key != "trainyard"}
    mine["properties"] = {
        key: each for key, each in mine["properties"].items() if not key.startswith("trainyard.")
    }
    variables = dict(mine["environmentVariables"])
    mine["environmentVariables"] = variables
    for name in added:
        del variables[name]
    return {
        key: (mine.get(key), sdk.get(key))
        for key in mine.keys() | sdk.keys()
        if mine.get(key) != sdk.get(key)
    }


def _filled(command: str) -> set[str]:
    return set(re.findall(r"\$\{\{(.+?)\}\}", command))


def _submit(python: Path, azure: FakeAzure, folder: Path) -> dict[str, dict[str, Any]]:
    """The bodies that azure-ai-ml sends, by the name of the YAML."""
    words = [str(python), "-W", "ignore", str(HERE / "azure_ai_ml_submit.py")]
    words += [azure.place.workspace_id, *(str(folder / f"{kind}.yaml") for kind in JOBS)]
    done = subprocess.run(
        words, env=azure.environ, cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == dict.fromkeys(("low", "high"), UNKNOWN)
    return {
        kind: azure.requests(method="PUT", path=f"/jobs/sdk-{kind}")[-1].json["properties"]
        for kind in JOBS
    }


def _less_filled(body: dict[str, Any]) -> dict[str, Any]:
    """Without what azure-ai-ml fills in and nobody asked for."""
    resources = dict(body["resources"])
    assert resources.pop("properties", {}) == {}
    # Of the folder that the SDK is started in, whatever the code is.
    git = {key for key in body["properties"] if key.startswith(("mlflow.", "azureml.git"))}
    properties = {key: each for key, each in body["properties"].items() if key not in git}
    return {**body, "resources": resources, "properties": properties}
