"""The body of a job is what azure-ai-ml itself sends for equivalent YAML; so few differ, and why."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from jobs.contracts.spec import DatasetVersion, Environment, InputSpec, JobSpec, Limits
from jobs.engines.azure_ml.code_listing import read_code
from jobs.engines.azure_ml.names import RUN
from jobs.engines.azure_ml.request import run_request
from tests.fakes.azureml import FakeAzure, JobTrouble
from tests.fakes.azureml.ranks import lay_code
from tests.fakes.gangs import make_spec

HERE = Path(__file__).parent
IMAGE = f"registry.azurecr.io/python@sha256:{'a' * 64}"
DATASET = DatasetVersion(name="digits", version=3, digest="d1", files=2, bytes=10)
# What differs on purpose.
MEANT = {
    # Ours are named by content, theirs by a GUID and by their own hash.
    "codeId": "codes",
    "environmentId": "environments",
}
JOBS: dict[str, dict[str, Any]] = {
    "mpi": {
        "launcher": "horovod",
        "nodes": 2,
        "processes_per_node": 2,
        "limits": Limits(wall_clock_s=5400, hang_s=600),
        "shm_size": "8g",
        "inputs": {"train": InputSpec(dataset=DATASET, mode="mount")},
        "tags": {"team": "vision"},
    },
    "pytorch": {
        "launcher": "torch",
        "nodes": 2,
        "experiment": "imagenet",
        "env": {"A": "b c"},
        "inputs": {"train": InputSpec(dataset=DATASET, mode="download")},
    },
    "tensorflow": {
        "launcher": "tensorflow",
        "nodes": 2,
        "processes_per_node": 1,
        "parameter_servers": 1,
    },
    "single": {"launcher": "none", "nodes": 1, "processes_per_node": 1},
    "user": {"launcher": "none", "nodes": 1, "processes_per_node": 1, "identity": "user"},
}


def test_a_body_is_the_one_that_the_sdk_sends(
    azure: FakeAzure, sdk_python: Callable[[str], Path], tmp_path: Path
):
    python = sdk_python("azure_ai_ml")
    azure.script(JobTrouble(what="queued for ever", times=None))
    environment = msgspec.convert(azure.environment(images={"python": IMAGE}), Environment)
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text("print('hello')")
    specs = {kind: _spec(kind, code) for kind in JOBS}
    ours = {kind: _ours(spec, environment) for kind, spec in specs.items()}
    # The same job has the same files, and so what starts each rank.
    lay_code(code)
    paths = [_write_yaml(tmp_path, kind, ours[kind], code) for kind in JOBS]
    theirs = _submit(python, azure, paths)
    for kind, body in zip(JOBS, theirs, strict=True):
        mine = ours[kind]
        for key, folder in MEANT.items():
            assert f"/{folder}/" in mine.pop(key)
            assert f"/{folder}/" in body.pop(key)
        assert mine == _less_filled(body), kind


def _spec(kind: str, code: Path) -> JobSpec:
    fields: dict[str, Any] = {
        "name": f"job-{kind}",
        "stack": "dev",
        "image": IMAGE,
        "cluster": "cpu",
        "compute": "cpu-1a2b3c",
        "code": str(code),
        **JOBS[kind],
    }
    return make_spec(["python", "train.py"], **fields)


def _ours(spec: JobSpec, environment: Environment) -> dict[str, Any]:
    code = read_code(spec).listing.name
    request = run_request(spec, environment, run=RUN, code=code)
    return msgspec.to_builtins(request.job.body.properties)


def _write_yaml(folder: Path, kind: str, body: Mapping[str, Any], code: Path) -> Path:
    """The same job as azure-ai-ml's users write it; JSON is YAML."""
    modes = {"ReadOnlyMount": "ro_mount", "Download": "download"}
    (checkpoints,) = body["outputs"].values()
    job: dict[str, Any] = {
        "type": "command",
        "name": f"sdk-{kind}",
        "display_name": body["displayName"],
        "experiment_name": body["experimentName"],
        "command": body["command"],
        "code": str(code),
        "environment": {"image": IMAGE},
        "environment_variables": body["environmentVariables"],
        "compute": "azureml:cpu-1a2b3c",
        "identity": {"type": "user_identity" if kind == "user" else "managed"},
        "resources": {
            "instance_count": body["resources"]["instanceCount"],
            **({"shm_size": "8g"} if "shmSize" in body["resources"] else {}),
        },
        "inputs": {
            name: {"type": "uri_folder", "path": each["uri"], "mode": modes[each["mode"]]}
            for name, each in body["inputs"].items()
        },
        "outputs": {
            "trainyard_checkpoints": {
                "type": "uri_folder",
                "path": checkpoints["uri"],
                "mode": "rw_mount",
            }
        },
        "tags": body["tags"],
        "properties": body["properties"],
        "distribution": _distribution(kind),
        "limits": {"timeout": 5400} if "limits" in body else None,
    }
    path = folder / f"{kind}.yaml"
    path.write_text(json.dumps({key: each for key, each in job.items() if each is not None}))
    return path


def _distribution(kind: str) -> dict[str, Any] | None:
    if kind == "tensorflow":
        return {"type": "tensorflow", "worker_count": 2, "parameter_server_count": 1}
    if kind in {"single", "user"}:
        return None
    return {"type": kind, "process_count_per_instance": 2}


def _submit(python: Path, azure: FakeAzure, paths: list[Path]) -> list[dict[str, Any]]:
    """The bodies that azure-ai-ml sends."""
    program = str(HERE / "azure_ai_ml_submit.py")
    words = [str(python), "-W", "ignore", program, azure.place.workspace_id, *map(str, paths)]
    done = subprocess.run(
        words, env=azure.environ, cwd=paths[0].parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    names = done.stdout.splitlines()[-1].split()
    requests = [azure.requests(method="PUT", path=f"/jobs/{name}")[-1] for name in names]
    return [each.json["properties"] for each in requests]


def _less_filled(body: dict[str, Any]) -> dict[str, Any]:
    """Without what azure-ai-ml fills in and nobody asked for."""
    resources = dict(body["resources"])
    assert resources.pop("properties", {}) == {}
    # Of the folder that the SDK is started in, whatever the code is.
    git = {key for key in body["properties"] if key.startswith(("mlflow.", "azureml.git"))}
    properties = {key: each for key, each in body["properties"].items() if key not in git}
    return {**body, "resources": resources, "properties": properties}
