"""Compare each engine's plans with JSON that was kept: what is on disk, and what `launch plan --json` prints.

Of local and azureml it is from before requests had types.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import (
    DatasetVersion,
    Environment,
    InputSpec,
    JobRetry,
    JobSpec,
    Limits,
    Plan,
    ResumePoint,
)
from jobs.engines import load_engine
from tests.fakes.cloud_stack import IMAGE, make_cloud_environment
from tests.fakes.gangs import make_environment, make_spec

PLANS = Path(__file__).with_name("plans")
DIGITS = DatasetVersion(name="digits", version=3, digest="d" * 64, files=2, bytes=9)
INPUTS = {
    "data": InputSpec(dataset=DIGITS, mode="mount"),
    "more": InputSpec(dataset=DIGITS, mode="download"),
    "shards": InputSpec(dataset=DIGITS, mode="stream"),
}
LOCAL = make_environment(Path("/workspace"), nodes=2, processes=4)
CLOUD = make_cloud_environment()
FIRST_API = make_cloud_environment(engine="azureml_v1")


def make_job(launcher: str, **changes: Any) -> JobSpec:
    return make_spec(["python", "-m", "train", "--a", "é\u2028"], launcher=launcher, **changes)


def make_cloud_job(launcher: str, **changes: Any) -> JobSpec:
    on_azure = {"stack": "dev", "image": IMAGE, "compute": "cpu-1a2b3c"}
    return make_job(launcher, **(on_azure | changes))


EVERYTHING: dict[str, Any] = {
    "nodes": 2,
    "inputs": INPUTS,
    "outputs": ("model",),
    "setup": ("pip list",),
    "env": {"A": "b"},
    "secrets": {"KEY": "the-key"},
    "limits": Limits(wall_clock_s=3600.5, hang_s=60.0, cost=3.0),
    "retry": JobRetry(max=2),
    "shm_size": "8g",
    "priority": "high",
    "experiment": "e",
    "tags": {"team": "vision"},
    "resume": ResumePoint(run="20260102-030405-abcd", step=7),
}
CASES: dict[str, tuple[Environment, JobSpec]] = {
    "local-none": (LOCAL, make_job("none")),
    "local-horovod": (LOCAL, make_job("horovod", **EVERYTHING)),
    "local-mpi": (LOCAL, make_job("mpi", nodes=2)),
    "azureml-none": (CLOUD, make_cloud_job("none", processes_per_node=1)),
    "azureml-horovod": (CLOUD, make_cloud_job("horovod", **EVERYTHING)),
    "azureml-torch": (CLOUD, make_cloud_job("torch", cluster="gpu", compute="gpu-4d5e6f")),
    "azureml-tensorflow": (CLOUD, make_cloud_job("tensorflow", parameter_servers=2, chief=True)),
    "azureml_v1-none": (FIRST_API, make_cloud_job("none", processes_per_node=1)),
    "azureml_v1-mpi": (FIRST_API, make_cloud_job("mpi", **EVERYTHING)),
    "azureml_v1-torch": (FIRST_API, make_cloud_job("torch", cluster="gpu")),
}


def test_each_engine_says_what_it_does_with_a_job_that_acts_as_its_sender() -> None:
    local = load_engine(LOCAL).plan(make_job("none", identity="user"))
    assert local.notes[0] == "a local run acts as you, with any `identity`"
    job = make_cloud_job("none", processes_per_node=1, identity="user")
    (note, *_) = load_engine(CLOUD).plan(job).notes
    assert note == "the job reaches data and results as you, with your roles alone; logs name you"
    with pytest.raises(LaunchError) as refused:
        load_engine(FIRST_API).plan(job)
    assert refused.value.hint == "the engine azureml, or `identity: managed`"


@pytest.mark.parametrize("name", CASES)
def test_a_plan_is_the_json_that_it_was(name: str) -> None:
    environment, spec = CASES[name]
    plan = load_engine(environment).plan(spec)
    told = msgspec.json.format(msgspec.json.encode(plan))
    kept = (PLANS / f"{name}.json").read_bytes()
    assert told == kept
    read = msgspec.json.decode(kept, type=Plan)
    assert msgspec.json.format(msgspec.json.encode(read)) == kept
