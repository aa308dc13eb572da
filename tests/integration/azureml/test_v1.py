"""The engine azureml_v1 against the stand-in Azure, through the real azureml-core."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jobs.contracts.errors import EnvironmentFailure, Refused
from jobs.contracts.spec import (
    DatasetVersion,
    Environment,
    InputSpec,
    JobSpec,
    Limits,
    LogLine,
    RunState,
)
from jobs.engines import load_engine, load_store
from jobs.engines.azure_ml.refusals import CloudRefusal
from jobs.engines.azure_ml_v1.engine import AzureMlV1Engine
from jobs.engines.azure_ml_v1.run_configuration import read_request, v1_request
from jobs.engines.azure_ml_v1.session import WORKER, Session
from jobs.runs.selection import Selection
from tests.busy import HANG_S, wait_until
from tests.fakes.azure_launch import AzureLaunch
from tests.fakes.azureml import FakeAzure, RequestTrouble, firewall, forbidden, lost_reply
from tests.fakes.cloud_stack import IMAGE, make_cloud_environment
from tests.fakes.gangs import make_spec
from tests.integration.azureml.test_same_as_sdk import ADDED, OURS

ORACLE = Path(__file__).with_name("azureml_core_oracle.py")
DIGITS = DatasetVersion(name="digits", version=1, digest="d" * 64, files=1, bytes=4)
PROGRAM = """\
import os, time
from pathlib import Path
rank = os.environ["RANK"]
print("rank", rank, "of", os.environ["WORLD_SIZE"], os.environ["GREETING"], flush=True)
print(Path(os.environ["TRAINYARD_INPUT_DIGITS"]).read_text(), flush=True)
if rank == "0":
    Path(os.environ["TRAINYARD_OUTPUT_MODEL"], "model.txt").write_text("trained")
    checkpoint = Path(os.environ["TRAINYARD_CHECKPOINT_DIR"], "step-000000001-aaaaaaaa")
    checkpoint.mkdir()
    (checkpoint / "weights").write_text("1")
"""
REFERENCE = f"registry.azurecr.io/pytorch@sha256:{'a' * 64}"


@pytest.fixture(scope="module")
def engine(
    standing_azure: FakeAzure, sdk_python: Callable[[str], Path]
) -> Iterator[AzureMlV1Engine]:
    """One for all tests: azureml-core takes seconds to load."""
    sdk_python("azureml_core")
    with pytest.MonkeyPatch.context() as patch:
        cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        for name, value in {**standing_azure.environ, "XDG_CACHE_HOME": cache}.items():
            patch.setenv(name, value)
        given = {**standing_azure.environment(), "engine": "azureml_v1"}
        made = load_engine(msgspec.convert(given, Environment))
        assert isinstance(made, AzureMlV1Engine)
        yield made
        made.store.session.close()


@pytest.fixture
def spec(tmp_path: Path) -> Callable[..., JobSpec]:
    def make(program: str, **changes: Any) -> JobSpec:
        code = tmp_path / "code"
        code.mkdir(exist_ok=True)
        (code / "train.py").write_text(program)
        # What travels is decided before azureml-core sees it.
        (code / ".amlignore").write_text("*\n")
        fields: dict[str, Any] = {
            "stack": "dev",
            "image": REFERENCE,
            "launcher": "horovod",
            "code": str(code),
            "compute": "cpu-1a2b3c",
            "nodes": 2,
            "processes_per_node": 1,
            **changes,
        }
        return make_spec(["python", "train.py"], **fields)

    return make


def texts(lines: list[LogLine], rank: int) -> list[str]:
    return [line.text for line in lines if line.rank == rank]


# --- What is sent ------------------------------------------------------------------------------


def test_run_configurations_are_those_that_azureml_core_builds(
    tmp_path: Path, sdk_python: Callable[[str], Path]
) -> None:
    inputs = {"digits": InputSpec(dataset=DIGITS, mode="mount")}
    specs = {
        "horovod": (
            {
                "inputs": inputs,
                "limits": Limits(wall_clock_s=90, hang_s=600),
                "shm_size": "8g",
                "env": {"GREETING": "hello"},
            },
            ("mpi", [2, 2]),
        ),
        "gloo": ({"launcher": "torch"}, ("pytorch", ["Gloo", 4, 2])),
        "nccl": (
            {"launcher": "torch", "cluster": "gpu", "compute": "gpu-4d5e6f"},
            ("pytorch", ["Nccl", 4, 2]),
        ),
        "tensorflow": (
            {"launcher": "tensorflow", "processes_per_node": 1, "parameter_servers": 1},
            ("tensorflow", [2, 1]),
        ),
        "alone": ({"launcher": "none", "nodes": 1, "processes_per_node": 1}, ("", [])),
    }
    environment = make_cloud_environment(engine="azureml_v1")
    # Written by hand, as users of azureml-core would write such jobs.
    variables: dict[str, dict[str, str]] = {"horovod": {"GREETING": "hello"}}
    cases: dict[str, Any] = {}
    for name, (changes, (kind, counts)) in specs.items():
        defaults = {"image": IMAGE, "compute": "cpu-1a2b3c", "launcher": "horovod", "nodes": 2}
        spec = make_spec(["python", "train.py"], **{**defaults, **changes})
        configuration = v1_request(spec, environment, run="RUN", code="C").configuration
        places = [f'"input.{each}=${{1}}"' for each in spec.inputs]
        node = " ".join(["exec PROGRAM", '"checkpoints=${0}"', *places])
        cases[name] = {
            "kind": kind,
            "counts": counts,
            "image": IMAGE,
            "image_name": "trainyard-pytorch",
            "compute": spec.compute,
            "command": ["sh", "-c", shlex.quote(node)],
            "input_words": [f"DatasetConsumptionConfig:{each}" for each in spec.inputs],
            "inputs": {
                each: [f"digits/{'d' * 64}/", given.mode] for each, given in spec.inputs.items()
            },
            "output": ["trainyard_checkpoints", "checkpoints/RUN/"],
            "lasts_s": spec.limits.wall_clock_s,
            "shm_size": spec.shm_size or "2g",
            "variables": variables.get(name, {}),
            "ours": msgspec.to_builtins(configuration),
        }
    ended = subprocess.run(
        [str(sdk_python("azureml_core")), "-W", "ignore", str(ORACLE), str(tmp_path)],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
        # It keeps what it has looked up in the home folder.
        env={**os.environ, "HOME": str(tmp_path), "PYTHONPATH": str(WORKER.parent)},
    )
    assert ended.returncode == 0, ended.stderr
    for name, (theirs, ours) in json.loads(ended.stdout).items():
        launcher = specs[name][0].get("launcher", "horovod")
        assert _without_ours(ours, OURS | ADDED.get(launcher, set())) == _read(theirs), name


# Our program on a node, and the name of the code: nothing in it that a shell would read.
PROGRAM_WORDS = re.compile(r"""python -I -S -c "[^"$`\\!]+" "C"(?= )""")


def _read(body: dict[str, Any]) -> dict[str, Any]:
    """A body with its command in words."""
    return {**body, "command": shlex.split(body["command"])}


def _without_ours(body: dict[str, Any], added: set[str]) -> dict[str, Any]:
    """What is left of our body without what `launch` adds to each job: a program and variables."""
    read, variables = _read(body), dict(body["environmentVariables"])
    for name in added:
        del variables[name]
    shell, option, node, *words = read["command"]
    node, num_found = PROGRAM_WORDS.subn("PROGRAM", node)
    assert num_found == 1
    return {**read, "command": [shell, option, node, *words], "environmentVariables": variables}


# --- A run -------------------------------------------------------------------------------------


def test_a_run_is_submitted_followed_and_fetched(
    azure: FakeAzure, engine: AzureMlV1Engine, spec: Callable[..., JobSpec], tmp_path: Path
) -> None:
    data = azure.blobs.container(azure.place.data_account, "data")
    data.upload_blob(f"{DIGITS.content_prefix}a.txt", b"five", overwrite=True)
    plan = engine.plan(
        spec(
            PROGRAM,
            inputs={"digits": InputSpec(dataset=DIGITS, mode="download", file="a.txt")},
            outputs=("model",),
            env={"GREETING": "hello from ${rank} of ${run.id}"},
            tags={"team": "vision"},
        )
    )
    handle = engine.submit(plan, {})
    lines = list(engine.logs(handle, None, follow=True))
    assert {rank: texts(lines, rank) for rank in (0, 1)} == {
        0: [f"rank 0 of 2 hello from 0 of {handle.id}", "five"],
        1: [f"rank 1 of 2 hello from 1 of {handle.id}", "five"],
    }
    status = engine.store.status(handle)
    assert (status.state, status.exit_code, status.id) == (RunState.COMPLETED, 0, handle.id)
    (sent,) = azure.requests(path=f"/experiments/{plan.spec.name}/snapshotrun")
    record = engine.store.record(handle)
    asked = read_request(record.plan).configuration
    assert sent.json["Configuration"]["command"] == asked.command
    assert sent.json["Configuration"]["environmentVariables"] == asked.environment_variables
    assert sent.json["TelemetryValues"] == {}
    assert azure.records.jobs[handle.id].tags == {"team": "vision", "trainyard": "1"}
    into = engine.fetch(handle, tmp_path / "fetched")
    assert (into / "outputs" / "model" / "model.txt").read_text() == "trained"
    assert "rank 1 of 2 hello" in (into / "logs" / "rank-00001.log").read_text()
    runs = azure.blobs.container(azure.place.data_account, "runs")
    kept = f"checkpoints/{handle.id}/step-000000001-aaaaaaaa/weights"
    assert runs.download_blob(kept).readall() == b"1"
    # Whoever types the next command starts anew.
    again = load_store(engine.environment)
    assert again.list(1) == [status]
    of_vision = Selection(tags=(("team", "vision"),), states=frozenset({RunState.COMPLETED}))
    assert again.list(20, of_vision) == [status]
    assert again.list(20, Selection(tags=(("team", "audio"),))) == []


# --- What goes wrong ---------------------------------------------------------------------------


def test_a_submit_whose_reply_is_lost_starts_one_run_as_the_stand_in_says(
    azure: FakeAzure, engine: AzureMlV1Engine, spec: Callable[..., JobSpec]
) -> None:
    before = set(azure.records.jobs)
    azure.script(lost_reply(method="POST", path="*/snapshotrun"))
    handle = engine.submit(engine.plan(spec("", launcher="none", nodes=1)), {})
    assert set(azure.records.jobs) - before == {handle.id}
    assert azure.wait(handle.id).state == "Completed"


@pytest.mark.faults
def test_a_launch_that_is_killed_while_its_job_is_sent_starts_one_run_as_the_stand_in_says(
    azure: FakeAzure, sdk_python: Callable[[str], Path], tmp_path: Path
) -> None:
    cache = Path(sdk_python("azureml_core")).parents[3]
    launch = AzureLaunch(azure, tmp_path)
    launch.environ["XDG_CACHE_HOME"] = str(cache.parent)
    described = {**json.loads(launch.env_file.read_text()), "engine": "azureml_v1"}
    launch.env_file.write_text(json.dumps(described))
    words = ("run", launch.write_job(name="killed"), "-d", "-y")
    before, path = set(azure.records.jobs), "/experiments/killed/snapshotrun"
    azure.script(RequestTrouble(path=f"*{path}", delay_s=1.0))
    program = "import sys; from jobs.cli import main; sys.exit(main())"
    typed = [sys.executable, "-c", program, *map(str, words), "--env", str(launch.env_file)]
    with subprocess.Popen(typed, env=launch.environ, stderr=subprocess.DEVNULL) as killed:
        wait_until(lambda: azure.requests(path=path), 60)
        killed.kill()
    # What it had started goes on: the request is carried out.
    again = launch.type(*words)
    assert again.code == 0, again.err
    (run,) = set(azure.records.jobs) - before
    assert again.out.strip() == run
    assert f"going on with {run}" in again.err
    assert azure.wait(run).state == "Completed"


@pytest.mark.parametrize(
    ("trouble", "message", "hint"),
    [
        (
            forbidden(host="*.api.azureml.ms", path="*/snapshotrun"),
            "our roles do not allow us to do `Microsoft.MachineLearningServices/workspaces/jobs/write`",
            "AzureML Data Scientist",
        ),
        (
            RequestTrouble(
                path="*/snapshotrun", status=400, code="UserError", message="Bad.", times=None
            ),
            "Azure answered 400 UserError: Bad.",
            "`launch plan JOB --json` shows the request",
        ),
        (
            firewall(account="tydevworkspace"),
            "the firewall of tydevworkspace.blob.core.windows.net blocks this machine's",
            "connect by VPN or peering",
        ),
    ],
    ids=["no role", "refused", "firewall"],
)
def test_a_refused_submit_leaves_nothing(
    azure: FakeAzure,
    engine: AzureMlV1Engine,
    spec: Callable[..., JobSpec],
    trouble: RequestTrouble,
    message: str,
    hint: str,
) -> None:
    azure.script(trouble)
    names = engine.store.local.names()
    # Code that was sent already would not be sent again.
    planned = engine.plan(spec(f"# {message}", launcher="none", nodes=1))
    with pytest.raises(CloudRefusal) as raised:
        engine.submit(planned, {})
    assert message in raised.value.message
    assert raised.value.hint
    assert hint in raised.value.hint
    assert engine.store.local.names() == names


def test_a_process_of_azureml_core_that_dies_is_told_of_and_started_again(
    engine: AzureMlV1Engine,
) -> None:
    session = engine.store.session
    assert session.details("20200101-000000-0000") is None
    assert session._process
    session._process.kill()
    with pytest.raises(EnvironmentFailure, match="azureml-core's process ended"):
        session.details("20200101-000000-0000")
    assert session.details("20200101-000000-0000") is None


def test_a_token_that_ends_is_renewed_for_azureml_core(
    azure: FakeAzure, engine: AzureMlV1Engine
) -> None:
    session = engine.store.session
    assert session.details("20200101-000000-0000") is None
    num_given = len(azure.requests(method="POST", path="/oauth2/v2.0/token"))
    azure.tokens.expire()
    assert session.details("20200101-000000-0000") is None
    assert len(azure.requests(method="POST", path="/oauth2/v2.0/token")) == num_given + 1


class Workspace:
    """A client that knows of a workspace only."""

    workspace = "W"

    def __init__(self, **properties: Any) -> None:
        self._properties = properties

    def get(self, _path: str, **_how: Any) -> Any:
        return {"properties": self._properties}


def test_a_private_workspace_is_refused_with_the_reason(engine: AzureMlV1Engine) -> None:
    client: Any = Workspace(publicNetworkAccess="Disabled", v1LegacyMode=False)
    session = Session(make_cloud_environment(engine="azureml_v1"), client)
    with pytest.raises(Refused, match=r"workspace `W` is private: .* needs v1LegacyMode"):
        session.details("20200101-000000-0000")
