"""Datasets, models and images between a laptop's stack and two on the stand-in Azure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from infra.local import azurite_server
from tests.fakes.azure_launch import AzureLaunch
from tests.fakes.azureml import FakeAzure
from tests.fakes.gangs import make_environment
from tests.folders import make_folder, read_folder
from tests.ports import free_port

CONTENT = {"a": b"one", "large": bytes(range(256)) * 40_000, "sub/ü": b""}
PROGRAM = """
import os
with open(os.path.join(os.environ["TRAINYARD_OUTPUT_MODEL"], "weights"), "wb") as file:
    file.write(b"w1")
"""
REPO = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The environment file of a local stack with a real store, one for all tests."""
    tmp_path = tmp_path_factory.mktemp("local")
    tools = json.loads((REPO / ".trainyard" / "tools.json").read_text())
    folder, port = tmp_path / "storage", free_port()
    made = make_environment(tmp_path / "workspace")
    storage = msgspec.structs.replace(
        made.storage,
        account="trainyard",
        blob_endpoint=f"http://127.0.0.1:{port}/trainyard",
        folder=str(folder),
    )
    server = azurite_server.Server(
        account="trainyard",
        port=port,
        node=tools["node"],
        azurite=tools["azurite"],
        containers=("data", "runs"),
    )
    azurite_server.start(folder, server)
    path = tmp_path / "local.json"
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(made, storage=storage)))
    yield path
    azurite_server.stop(folder)


@pytest.fixture
def launch(azure: FakeAzure, tmp_path: Path) -> AzureLaunch:
    """Somebody with a second stack on Azure, `test`, in another storage account."""
    made = AzureLaunch(azure, tmp_path)
    test = azure.environment()
    test["stack"] = "test"
    account = azure.place.workspace_account
    test["storage"]["account"] = account
    test["storage"]["blob_endpoint"] = f"https://{account}.blob.core.windows.net"
    for name in ("data", "runs"):
        azure.blobs.container(account, name)
    (tmp_path / "test.json").write_text(json.dumps(test))
    return made


def test_a_dataset_goes_from_a_laptop_to_azure_and_back(
    launch: AzureLaunch, local: Path, azure: FakeAzure
) -> None:
    make_folder(launch.folder / "d", CONTENT)
    pushed = launch.type("data", "push", "d", "d", "--env", local, with_environment=False)
    assert pushed.out == "d@1\n", pushed.err
    up = ["data", "copy", "d", "--to", "dev.json", "--env", local]
    copied = launch.type(*up, with_environment=False)
    assert (copied.code, copied.out) == (0, "d@1\n"), copied.err
    assert azure.requests(method="PUT", path="/data/d/versions/1")
    again = launch.type(*up, with_environment=False)
    assert again.err == "stack dev has the content of d@1 of stack local already, as d@1\n"
    there = launch.type("data", "copy", "d@1", "--to", "test.json")
    assert (there.code, there.out) == (0, "d@1\n"), there.err
    assert there.err.endswith("; 3 files (10.2 MB) copied by the service\n")
    make_folder(launch.folder / "e", {**CONTENT, "a": b"ONE"})
    assert launch.type("data", "push", "e", "d").out == "d@2\n"
    back = launch.type("data", "copy", "d@2", "--to", local)
    assert (back.code, back.out) == (0, "d@2\n"), back.err
    launch.type("data", "pull", "d@2", "--to", "to", "--env", local, with_environment=False)
    assert read_folder(launch.folder / "to") == {**CONTENT, "a": b"ONE"}


def test_a_model_of_azure_is_registered_and_comes_to_a_laptop(
    launch: AzureLaunch, local: Path, azure: FakeAzure
) -> None:
    job = launch.write_job(PROGRAM, outputs={"model": {}})
    done = launch.type("run", job, "-y", "--no-fetch")
    assert done.code == 0, done.err
    run = done.out.splitlines()[0]
    registered = launch.type("model", "register", run, "--name", "net")
    assert (registered.code, registered.out) == (0, "net@1\n"), registered.err
    kept = azure.records.models["net", "1"]["properties"]
    assert (kept["modelType"], kept["tags"]["run"]) == ("custom_model", run)
    assert "/datastores/data/paths/_models/net/" in kept["modelUri"]
    assert launch.type("model", "copy", "net", "--to", local).out == "net@1\n"
    shown = launch.type("model", "show", "net", "--json", "--env", local, with_environment=False)
    assert json.loads(shown.out)["lineage"]["run"] == run
    fetched = launch.type("model", "fetch", "net", "--env", local, with_environment=False)
    assert fetched.out == "net-1\n"
    listed = json.loads((launch.folder / "net-1" / "model.json").read_text())["listed"]
    assert [each["sha256"] for each in listed] == [hashlib.sha256(b"w1").hexdigest()]
    assert read_folder(launch.folder / "net-1" / "files") == {"weights": b"w1"}


def test_an_image_is_imported_by_its_digest(launch: AzureLaunch, azure: FakeAzure) -> None:
    test = json.loads((launch.folder / "test.json").read_text())
    dev = azure.environment(images={"pytorch": f"devreg.azurecr.io/x/py@sha256:{'a' * 64}"})
    dev["registry"] = {"login_server": "devreg.azurecr.io"}
    launch.env_file.write_text(json.dumps(dev))
    done = launch.type("image", "promote", "pytorch", "--to", "test.json")
    pinned = f"{test['registry']['login_server']}/x/py@sha256:{'a' * 64}"
    assert (done.code, done.out) == (0, f"  trainyard:images:\n    pytorch: {pinned}\n"), done.err
    (asked,) = azure.records.imported
    assert asked["source"]["sourceImage"] == f"x/py@sha256:{'a' * 64}"
    assert asked["source"]["resourceId"].endswith("/registries/devreg")
    refused = launch.type("image", "promote", "nothing", "--to", "test.json")
    assert refused.code == 102
    assert "stack `dev` pins no image `nothing`" in refused.err
