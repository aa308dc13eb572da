"""From a job to the body that Azure ML is sent: whole values."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from jobs.contracts.spec import DatasetVersion, InputSpec, JobRetry, JobSpec, Limits
from jobs.engines.azure_ml.names import CODE, RUN, job_name, run_of_job
from jobs.engines.azure_ml.node_job import environment_variables, node_command
from jobs.engines.azure_ml.request import (
    AzureMLRequest,
    job_request,
    plan_job,
    run_request,
)
from tests.fakes.cloud_stack import IMAGE, WORKSPACE, make_cloud_environment
from tests.fakes.gangs import make_spec

ENVIRONMENT = make_cloud_environment()
STORES = "azureml://subscriptions/S/resourcegroups/G/workspaces/W/datastores"
RUN_ID = "20260102-030405-abcd"
VERSION = hashlib.sha256(IMAGE.encode()).hexdigest()[:16]
IMAGE_ID = f"{WORKSPACE}/environments/trainyard-pytorch/versions/{VERSION}"


def job(launcher: str = "horovod", **changes: Any) -> JobSpec:
    """A job of two nodes with two ranks each on the cluster `cpu`."""
    fields: dict[str, Any] = {
        "name": "resnet",
        "limits": Limits(wall_clock_s=None, hang_s=1800),
        "stack": "dev",
        "image": IMAGE,
        "launcher": launcher,
        "cluster": "cpu",
        "compute": "cpu-1a2b3c",
        "nodes": 2,
        "processes_per_node": 2,
        **changes,
    }
    return make_spec(["python", "-m", "trainer.pytorch.resnet50"], **fields)


def properties_of(spec: JobSpec) -> dict[str, Any]:
    request = run_request(spec, ENVIRONMENT, run=RUN_ID, code="C")
    return msgspec.to_builtins(request.job.body.properties)


def test_a_horovod_job_is_an_mpi_job():
    """Everything that a job sends, once and whole."""
    spec = job()
    request = run_request(spec, ENVIRONMENT, run=RUN_ID, code="C")
    assert msgspec.to_builtins(request) == {
        "environment": {
            "path": IMAGE_ID,
            "body": {"properties": {"image": IMAGE, "isAnonymous": False, "isArchived": False}},
        },
        "job": {
            "path": f"{WORKSPACE}/jobs/{RUN_ID}",
            "api_version": "2024-04-01-preview",
            "body": {
                "properties": {
                    "jobType": "Command",
                    "displayName": "resnet",
                    "experimentName": "resnet",
                    "isArchived": False,
                    "tags": {"trainyard": "1"},
                    "properties": {
                        "trainyard.run": RUN_ID,
                        "trainyard.attempt": "1",
                        "trainyard.stack": "dev",
                        "trainyard.cluster": "cpu",
                        "trainyard.processes_per_node": "2",
                    },
                    "command": node_command(spec, "C"),
                    "codeId": f"{WORKSPACE}/codes/C/versions/1",
                    "environmentId": IMAGE_ID,
                    "environmentVariables": environment_variables(
                        spec, ENVIRONMENT, run=RUN_ID, attempt=1
                    ),
                    "computeId": f"{WORKSPACE}/computes/cpu-1a2b3c",
                    "identity": {"identityType": "Managed"},
                    "resources": {"instanceCount": 2},
                    "distribution": {"distributionType": "Mpi", "processCountPerInstance": 2},
                    "inputs": {},
                    "outputs": {
                        "trainyard_checkpoints": {
                            "jobOutputType": "uri_folder",
                            "uri": f"{STORES}/runs/paths/checkpoints/{RUN_ID}/",
                            "mode": "ReadWriteMount",
                        }
                    },
                }
            },
        },
    }


PER_NODE = {"distributionType": "PyTorch", "processCountPerInstance": 2}


@pytest.mark.parametrize(
    ("launcher", "changes", "expected"),
    [
        ("mpi", {}, {"distributionType": "Mpi", "processCountPerInstance": 2}),
        ("torch", {}, PER_NODE),
        ("torch", {"nodes": 1, "processes_per_node": 1}, PER_NODE | {"processCountPerInstance": 1}),
        ("none", {}, PER_NODE),
        ("none", {"nodes": 1, "processes_per_node": 1}, None),
        (
            "tensorflow",
            {"parameter_servers": 2, "chief": True},
            {"distributionType": "TensorFlow", "workerCount": 4, "parameterServerCount": 2},
        ),
        (
            "tensorflow",
            {},
            {"distributionType": "TensorFlow", "workerCount": 4, "parameterServerCount": 0},
        ),
    ],
)
def test_each_launcher_has_its_distribution(launcher, changes, expected):
    assert properties_of(job(launcher, **changes)).get("distribution") == expected


def test_what_a_job_asks_for_besides_is_sent():
    dataset = DatasetVersion(name="digits", version=3, digest="d1", files=2, bytes=10)
    moved = msgspec.structs.replace(dataset, name="own", prefix="elsewhere/own/")
    spec = job(
        inputs={
            "train": InputSpec(dataset=dataset, mode="mount"),
            "test": InputSpec(dataset=moved, mode="download"),
            "more": InputSpec(dataset=dataset, mode="stream"),
        },
        limits=Limits(wall_clock_s=5400.5, hang_s=600),
        shm_size="8g",
        priority="high",
        experiment="imagenet",
        tags={"team": "vision"},
    )
    found = properties_of(spec)
    wanted = ("inputs", "limits", "resources", "queueSettings", "experimentName", "tags")
    assert {key: found[key] for key in wanted} == {
        "inputs": {
            "train": {
                "jobInputType": "uri_folder",
                "uri": f"{STORES}/data/paths/digits/d1/",
                "mode": "ReadOnlyMount",
            },
            "test": {
                "jobInputType": "uri_folder",
                "uri": f"{STORES}/data/paths/elsewhere/own/",
                "mode": "Download",
            },
        },
        "limits": {"jobLimitsType": "Command", "timeout": "PT1H30M1S"},
        "resources": {"instanceCount": 2, "shmSize": "8g"},
        "queueSettings": {"priority": 3},
        "experimentName": "imagenet",
        "tags": {"team": "vision", "trainyard": "1"},
    }


@pytest.mark.parametrize(
    ("priority", "sent"), [("low", {"priority": 1}), ("normal", None), ("high", {"priority": 3})]
)
def test_a_priority_is_a_number_of_azure_ml_and_the_usual_one_is_left_out(priority, sent):
    assert properties_of(job(priority=priority)).get("queueSettings") == sent


def test_no_secret_is_in_the_request_but_its_name():
    spec = job(secrets={"TOKEN": "wandb-key"})
    variables = properties_of(spec)["environmentVariables"]
    assert "TOKEN" not in variables
    told = msgspec.json.decode(base64.urlsafe_b64decode(variables["TRAINYARD_JOB"]))
    assert told["secrets"] == {"TOKEN": "wandb-key"}


def test_a_tag_cannot_pass_for_ours():
    assert properties_of(job(tags={"trainyard": "0"}))["tags"] == {"trainyard": "1"}


def test_a_plan_is_the_request_with_two_places_left_open():
    plan = plan_job(job(), ENVIRONMENT)
    text = bytes(plan.request).decode()
    filled = msgspec.json.decode(text.replace(RUN, RUN_ID).replace(CODE, "C"), type=AzureMLRequest)
    assert filled == run_request(job(), ENVIRONMENT, run=RUN_ID, code="C")
    assert plan.notes == ()


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"priority": "low"}, "Azure ML does not document the effect of a job's priority"),
        (
            {"launcher": "tensorflow", "processes_per_node": 1, "parameter_servers": 3},
            "3 parameter servers share 2 nodes",
        ),
        (
            {"launcher": "tensorflow", "processes_per_node": 2},
            "Azure ML does not document several TensorFlow workers on one node",
        ),
        ({"cluster": "gpu"}, "Azure may take nodes of this cluster away at any time"),
        (
            {"limits": Limits(wall_clock_s=None, hang_s=None)},
            "nothing ends a run that hangs: `limits.hang` is off, and no limit of time is set",
        ),
    ],
)
def test_a_plan_notes_what_may_surprise(changes, note):
    (found,) = plan_job(job(**changes), ENVIRONMENT).notes
    assert note in found


def test_a_low_priority_job_with_retries_has_no_note():
    assert plan_job(job(cluster="gpu", retry=JobRetry(max=2)), ENVIRONMENT).notes == ()


def test_a_plan_whose_limits_end_a_run_that_hangs_has_no_note():
    for limits in (Limits(wall_clock_s=9, hang_s=None), Limits(wall_clock_s=None, hang_s=600)):
        assert plan_job(job(limits=limits), ENVIRONMENT).notes == ()


def test_a_later_attempt_has_a_name_of_its_own_and_the_same_checkpoints():
    ids = {"code_id": "C", "image_id": "I", "command": "run"}
    first = job_request(job(), ENVIRONMENT, run=RUN_ID, **ids)
    second = job_request(job(), ENVIRONMENT, run=RUN_ID, **ids, attempt=2)
    assert second.path == f"{first.path}_2"
    one, other = (msgspec.to_builtins(each.body.properties) for each in (first, second))
    assert {key for key in one if one[key] != other[key]} == {"properties", "environmentVariables"}
    assert run_of_job(job_name(RUN_ID)) == (RUN_ID, 1)
    assert run_of_job(job_name(RUN_ID, 2)) == (RUN_ID, 2)


def test_a_plan_loads_nothing_of_azure():
    program = (
        "import sys\n"
        "from jobs.engines.azure_ml.engine import AzureMlEngine\n"
        "from tests.jobs.engines.azure_ml.test_request import ENVIRONMENT, job\n"
        "before = {name for name in sys.modules if name.split('.')[0] == 'azure'}\n"
        "plan = AzureMlEngine(ENVIRONMENT).plan(job())\n"
        "assert plan.engine == 'azureml'\n"
        "print(*[name for name in sys.modules if name.split('.')[0] in "
        "('azure', 'msal', 'requests', 'ssl')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def test_a_job_acts_as_its_sender_where_its_file_says_so():
    spec = job(identity="user", secrets={"KEY": "the-key"})
    properties = properties_of(spec)
    assert properties["identity"] == {"identityType": "UserIdentity"}
    assert properties["environmentVariables"]["TRAINYARD_IDENTITY"] == "user"
    assert "TRAINYARD_IDENTITY" not in properties_of(job())["environmentVariables"]
    assert plan_job(spec, ENVIRONMENT).notes[0] == (
        "the job reaches data, results and secrets as you, with your roles alone; logs name you"
    )
