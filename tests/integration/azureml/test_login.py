"""What befalls a login while a run is followed: tokens end, the network is gone, a host is not Azure's."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from azure.core.exceptions import ServiceRequestError

from jobs.blobs.credentials import our_tokens
from jobs.contracts.errors import EnvironmentFailure
from jobs.contracts.spec import Environment, RunState
from jobs.engines.azure_ml.artifacts import Artifacts
from jobs.engines.azure_ml.client import ArmClient
from jobs.engines.azure_ml.logs import read_logs
from jobs.engines.azure_ml.runs import CloudRuns
from tests.fakes.azure_launch import AzureLaunch
from tests.fakes.azureml import FakeAzure, RequestTrouble
from tests.fakes.azureml.judge import read_tables
from tests.fakes.azureml.messages import Request

# Ends only when it is let.
WAITING = """
import pathlib, sys, time
print("begun", flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.02)
print("let go", flush=True)
"""
# Results that go up in several blocks, while the log is read.
WRITING = """
import pathlib, time
pathlib.Path("outputs").mkdir(exist_ok=True)
pathlib.Path("outputs/model.bin").write_bytes(bytes(range(256)) * 4096 * 9)
for step in range(10):
    print("step", step, flush=True)
    time.sleep(0.1)
"""


@dataclass(kw_only=True)
class Expiry(RequestTrouble):
    """All tokens end just before the first request that fits is looked at; the rest passes."""

    azure: FakeAzure
    has_come: bool = False

    def fits(self, request: Request) -> bool:
        if not self.has_come and super().fits(request):
            self.has_come = True
            self.azure.tokens.expire()
        return False


@pytest.fixture
def launch(azure: FakeAzure, tmp_path: Path) -> AzureLaunch:
    return AzureLaunch(azure, tmp_path)


@pytest.fixture
def environment(launch: AzureLaunch, monkeypatch: pytest.MonkeyPatch) -> Iterator[Environment]:
    """That of the stand-in; this process, too, reaches nothing else."""
    read_tables()  # made before, where there are none
    for name, value in launch.environ.items():
        monkeypatch.setenv(name, value)
    our_tokens.cache_clear()
    yield msgspec.convert(launch.azure.environment(), Environment)
    our_tokens.cache_clear()


def num_storage_tokens(azure: FakeAzure) -> int:
    asked = azure.requests(method="POST", path="/oauth2/v2.0/token")
    return sum(b"storage.azure.com" in each.body for each in asked)


def num_node_tokens(azure: FakeAzure) -> int:
    return len(azure.requests(path="/identity"))


def test_tokens_that_end_while_a_run_is_on_are_not_noticed(launch: AzureLaunch) -> None:
    azure = launch.azure
    logs, results = azure.place.workspace_account, azure.place.data_account
    endings = [
        Expiry(azure=azure, method="GET", path="*/details"),
        Expiry(azure=azure, method="GET", host=f"{logs}.blob.*", path="*/user_logs/*"),
        Expiry(azure=azure, method="PUT", host=f"{results}.blob.*", path="*/outputs/model.bin"),
        Expiry(azure=azure, method="GET", host=f"{results}.blob.*", path="*/outputs/model.bin"),
    ]
    azure.script(*endings)
    before, of_nodes = num_storage_tokens(azure), num_node_tokens(azure)
    typed = launch.type("run", launch.write_job(WRITING), "-y")
    assert typed.code == 0, typed.err
    assert [each.has_come for each in endings] == [True] * 4
    run, *_ = typed.out.split()
    assert [line for line in typed.out.splitlines() if "step" in line] == [
        f"[0] step {step}" for step in range(10)
    ]
    assert "waiting" not in typed.err
    home = launch.folder / run / "outputs" / "model.bin"
    assert home.read_bytes() == bytes(range(256)) * 4096 * 9
    assert num_storage_tokens(azure) - before >= 3
    assert num_node_tokens(azure) - of_nodes >= 2


# Says who asked, then what the test has written down for that resource: a token, or what went wrong.
AZ = """#!/bin/sh
folder=$(dirname "$0")
echo "$6" >> "$folder/asked"
[ -f "$folder/trouble" ] && { cat "$folder/trouble" >&2; exit 1; }
exec cat "$folder/${6#https://}"
"""


def test_az_is_asked_once_for_each_token_and_its_troubles_are_told_apart(
    launch: AzureLaunch,
) -> None:
    folder = launch.folder / "bin"
    folder.mkdir()
    (folder / "az").write_text(AZ)
    (folder / "az").chmod(0o700)
    ends = int(time.time()) + 3600
    for host in ("management.azure.com", "storage.azure.com"):
        token = launch.azure.tokens.give(f"https://{host}")
        (folder / host).write_text(json.dumps({"accessToken": token, "expires_on": ends}))
    del launch.environ["AZURE_CLIENT_SECRET"]
    launch.environ["AZURE_TOKEN_CREDENTIALS"] = "AzureCliCredential"
    launch.environ["PATH"] = f"{folder}:{launch.environ['PATH']}"
    typed = launch.type("run", launch.write_job("print(1)"), "-y")
    assert typed.code == 0, typed.err
    asked = (folder / "asked").read_text().split()
    assert sorted(asked) == ["https://management.azure.com", "https://storage.azure.com"]
    for said, told in (
        ("ERROR: Please run 'az login' to set up an account.", "not logged in to Azure: "),
        (
            "ERROR: HTTPSConnectionPool(host='login.microsoftonline.com', port=443): Max retries "
            "exceeded with url: /x (Caused by NameResolutionError('no address'))",
            "Azure's login cannot be reached: ",
        ),
    ):
        (folder / "trouble").write_text(said)
        typed = launch.type("ls")
        assert (typed.code, told in typed.err) == (1, True), typed.err


class Laptop:
    """A credential whose network comes and goes."""

    def __init__(self, azure: FakeAzure) -> None:
        self._azure = azure
        self.num_to_fail = 0

    def get_token(self, scope: str) -> Any:
        if self.num_to_fail:
            self.num_to_fail -= 1
            raise ServiceRequestError("Failed to resolve 'login.microsoftonline.com'")
        token = self._azure.tokens.give(scope.removesuffix("/.default"))
        return SimpleNamespace(token=token, expires_on=time.time() + 3600)


def test_a_laptop_that_wakes_before_its_network_goes_on_following(
    launch: AzureLaunch, environment: Environment, capsys: pytest.CaptureFixture[str]
) -> None:
    azure, gate = launch.azure, launch.folder / "gate"
    command = ["python", "train.py", str(gate)]
    job = launch.write_job(WAITING, script=None, command=command, code=".")
    run = launch.type("run", job, "-y", "-d").out.strip()
    laptop = Laptop(azure)
    runs = CloudRuns(environment, credential=laptop)
    handle = runs.find(run)
    lines = read_logs(runs, handle, None, follow=True)
    assert next(lines).text == "begun"
    capsys.readouterr()
    laptop.num_to_fail = 2
    azure.tokens.expire()
    gate.touch()
    assert [line.text for line in lines] == ["let go"]
    assert laptop.num_to_fail == 0
    assert runs.status(handle).state is RunState.COMPLETED
    said = capsys.readouterr().err
    assert "Azure's login cannot be reached: Failed to resolve" in said
    assert "trying again for 15 min; the run goes on" in said
    assert "not logged in" not in said


def test_a_file_of_an_environment_sends_no_token_elsewhere(launch: AzureLaunch) -> None:
    azure = launch.azure
    given = json.loads(launch.env_file.read_text())
    given["storage"]["blob_endpoint"] = "https://tydevdata.blob.core.windows.net.evil.example"
    launch.env_file.write_text(json.dumps(given))
    before = num_storage_tokens(azure)
    typed = launch.type("show", "20260101-000000-abcd")
    assert typed.code == 1
    assert "is not sent to `https://tydevdata.blob.core.windows.net.evil.example`" in typed.err
    assert "hint: " in typed.err
    assert num_storage_tokens(azure) == before


def test_a_datastore_elsewhere_is_shown_no_token(
    launch: AzureLaunch, environment: Environment
) -> None:
    azure = launch.azure
    before = num_storage_tokens(azure)
    store = azure.records.datastores["workspaceartifactstore"]
    store["endpoint"] = "evil.example"
    try:
        with pytest.raises(
            EnvironmentFailure, match=r"blob\.evil\.example`, which is not an Azure store"
        ):
            Artifacts(ArmClient(environment))
    finally:
        store["endpoint"] = "core.windows.net"
    assert num_storage_tokens(azure) == before
