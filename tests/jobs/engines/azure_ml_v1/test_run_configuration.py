"""From a job to the run configuration that azureml-core is to send (whole ones: test_v1_oracle.py)."""

from __future__ import annotations

import base64
import shlex
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import DatasetVersion, InputSpec, JobRetry, JobSpec, Limits
from jobs.engines.azure_ml_v1.run_configuration import Distribution, plan_run, v1_request
from tests.busy import HANG_S
from tests.fakes.cloud_stack import IMAGE, make_cloud_environment
from tests.fakes.gangs import make_spec

ENVIRONMENT = make_cloud_environment(engine="azureml_v1")
DIGITS = DatasetVersion(name="digits", version=3, digest="d" * 64, files=1, bytes=1)
SUPPORT = "Microsoft's support of azureml-core ended on 2026-06-30; use the engine azureml"


def job(**changes: Any) -> JobSpec:
    fields: dict[str, Any] = {"stack": "dev", "image": IMAGE, "compute": "cpu-1a2b3c", **changes}
    return make_spec(["python", "train.py"], hang_s=1800, **fields)


def test_a_run_has_its_id_its_experiment_and_our_tag():
    request = v1_request(
        job(experiment="e", tags={"team": "vision"}), ENVIRONMENT, run="RUN", code="CODE"
    )
    told = (request.run_id, request.experiment, request.tags)
    assert told == ("RUN", "e", {"team": "vision", "trainyard": "1"})


def test_places_are_words_that_azure_ml_replaces():
    inputs = {
        "digits": InputSpec(dataset=DIGITS, mode="mount"),
        "shards": InputSpec(dataset=DIGITS, mode="stream"),
    }
    request = v1_request(job(inputs=inputs), ENVIRONMENT, run="RUN", code="CODE").configuration
    words = shlex.split(request.command)
    assert (words[:2], words[3:]) == (
        ["sh", "-c"],
        ["DatasetOutputConfig:trainyard_checkpoints", "DatasetConsumptionConfig:digits"],
    )
    assert words[2].startswith('exec python -I -S -c "import ')
    assert words[2].endswith('" "CODE" "checkpoints=${0}" "input.digits=${1}"')
    assert list(request.inputs) == ["digits"]


@pytest.mark.parametrize(
    ("changes", "kind", "arguments"),
    [
        ({"launcher": "mpi", "nodes": 3}, "MpiConfiguration", (2, 3)),
        ({"launcher": "horovod", "nodes": 3}, "MpiConfiguration", (2, 3)),
        ({"launcher": "torch", "nodes": 3}, "PyTorchConfiguration", ("Gloo", 6, 3)),
        (
            {"launcher": "tensorflow", "nodes": 3, "parameter_servers": 1},
            "TensorflowConfiguration",
            (6, 1),
        ),
    ],
)
def test_a_launcher_is_a_class_of_azureml_core_with_its_counts(
    changes: dict[str, Any], kind: str, arguments: tuple[Any, ...]
) -> None:
    request = v1_request(job(processes_per_node=2, **changes), ENVIRONMENT, run="RUN", code="CODE")
    assert request.configuration.distribution == Distribution(kind=kind, arguments=arguments)


def test_secrets_are_names_only():
    request = v1_request(job(secrets={"KEY": "the-key"}), ENVIRONMENT, run="RUN", code="CODE")
    variables = request.configuration.environment_variables
    told = msgspec.json.decode(base64.urlsafe_b64decode(variables["TRAINYARD_JOB"]))
    assert told["secrets"] == {"KEY": "the-key"}
    assert "KEY" not in variables


@pytest.mark.parametrize(
    ("changes", "notes"),
    [
        ({}, (SUPPORT,)),
        (
            {
                "retry": JobRetry(max=1),
                "priority": "high",
                "limits": Limits(wall_clock_s=60, hang_s=600),
            },
            (
                SUPPORT,
                "`retry` has no effect: the engine azureml starts a preempted run again",
                "`priority` has no effect with azureml-core",
            ),
        ),
    ],
)
def test_a_plan_says_what_this_engine_does_not_do(
    changes: dict[str, Any], notes: tuple[str, ...]
) -> None:
    plan = plan_run(job(**changes), ENVIRONMENT)
    assert (plan.engine, plan.notes) == ("azureml_v1", notes)


@pytest.mark.parametrize(("wall_clock_s", "seconds"), [(None, 2592000), (0.5, 1), (59.2, 60)])
def test_a_time_limit_is_in_whole_seconds(wall_clock_s: float | None, seconds: int) -> None:
    spec = job(limits=Limits(wall_clock_s=wall_clock_s, hang_s=600))
    request = v1_request(spec, ENVIRONMENT, run="RUN", code="CODE")
    assert request.configuration.max_run_duration_seconds == seconds


def test_plan_rejects_several_tensorflow_workers_on_a_node():
    with pytest.raises(LaunchError, match="on a node of its own") as raised:
        plan_run(job(launcher="tensorflow", nodes=2), ENVIRONMENT)
    assert raised.value.hint
    assert "--nodes 4 --set processes_per_node=1" in raised.value.hint


def test_plan_rejects_an_image_that_is_in_no_registry():
    with pytest.raises(LaunchError, match="`pytorch` is in no registry"):
        plan_run(job(image="pytorch"), ENVIRONMENT)


def test_planning_loads_no_azure_package():
    program = (
        "import sys, msgspec\n"
        "from jobs.engines import load_engine\n"
        "from tests.jobs.engines.azure_ml_v1.test_run_configuration import ENVIRONMENT, job\n"
        "load_engine(ENVIRONMENT).plan(job())\n"
        "print([name for name in sys.modules if name.split('.')[0] in {'azure', 'azureml'}])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=HANG_S
    )
    assert ended.stdout == "[]\n"
