"""What is made of a workspace in which others have made things, too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from jobs.contracts.spec import Environment
from jobs.engines.azure_ml import client
from jobs.engines.azure_ml import import_workspace as env_import
from tests.fakes.cloud_stack import WORKSPACE

BLOB = {"datastoreType": "AzureBlob", "accountName": "acc", "isDefault": False}
ODD: list[Any] = [None, "x", {}, {"name": "n"}, {"name": "n", "properties": None}]
ANSWERS: dict[str, Any] = {
    "": {
        "id": WORKSPACE,
        "location": "westeurope",
        "properties": {
            "discoveryUrl": "https://westeurope.api.azureml.ms/discovery",
            "containerRegistry": None,
            "keyVault": None,
            "v1LegacyMode": None,
        },
    },
    "/datastores": [
        *ODD,
        {"name": "lake", "properties": {"datastoreType": "OneLake", "accountName": None}},
        {"name": "data", "properties": {**BLOB, "containerName": "data", "endpoint": None}},
        {"name": "runs", "properties": {**BLOB, "containerName": "runs", "protocol": None}},
    ],
    "/computes": [
        *ODD,
        {"name": "mine", "properties": {"computeType": "ComputeInstance", "properties": None}},
        {"name": "cpu", "properties": {"computeType": "AmlCompute"}},
        {"name": "new", "properties": {"computeType": "AmlCompute"}},
    ],
    "/computes/cpu": {
        "properties": {
            "properties": {"vmSize": "STANDARD_DS3_V2", "scaleSettings": {"maxNodeCount": 2}}
        }
    },
    "/computes/new": {"properties": {"properties": None}},
    "/vmSizes": {
        "value": [*ODD, {"name": "Standard_DS3_v2", "family": "f", "vCPUs": 4, "gpus": None}]
    },
}


class OddClient:
    """Answers as a workspace that others use."""

    def __init__(self, environment: Environment, **_: Any) -> None:
        self.environment = environment
        self.workspace = environment.workspace.id

    def get(self, path: str, **_: Any) -> Any:
        """See ArmClient."""
        inside = path.removeprefix(WORKSPACE)
        return ANSWERS[inside if inside in ANSWERS else f"/{path.rpartition('/')[2]}"]

    def pages(self, path: str, **_: Any) -> Iterator[Any]:
        """See ArmClient."""
        return iter(ANSWERS[path.removeprefix(WORKSPACE)])


def test_what_others_made_does_not_end_an_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "ArmClient", OddClient)
    found = env_import.import_workspace(WORKSPACE, data=None, runs=None, engine="azureml")
    assert msgspec.to_builtins(found.storage.containers) == {"data": "data", "runs": "runs"}
    assert found.storage.blob_endpoint == "https://acc.blob.core.windows.net/"
    assert [(name, each.size) for name, each in found.clusters.items()] == [
        ("cpu", "Standard_DS3_v2")
    ]
