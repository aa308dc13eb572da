"""A provider process of the test's own, asked as the engine asks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty
from pulumi.runtime.proto import provider_pb2 as pb
from pulumi.runtime.proto import provider_pb2_grpc

from tests import needs
from tests.busy import HANG_S
from tests.fakes import azure_native
from tests.fakes.azure_native import tables
from tests.fakes.azure_native.wire import pack, unpack

GROUP = {"resourceGroupName": "rg", "location": "westeurope"}
ACCOUNT = {
    "accountName": "yarddata",
    "resourceGroupName": "rg",
    "location": "westeurope",
    "kind": "StorageV2",
    "sku": {"name": "Standard_LRS"},
}


@pytest.fixture(scope="session", autouse=True)
def models() -> Path:
    """Microsoft's tables."""
    with needs.whole_environment():
        return tables.find_tables()


class Asked(Exception):
    """An error that the provider answered in place of a result."""


class Client:
    """The engine's side of one provider process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "azure"
        self.folder.mkdir()
        azure_native.install(folder / "bin", sys.executable)
        self.process = subprocess.Popen(
            [folder / "bin" / azure_native.PROGRAM, "127.0.0.1:1"],
            env={**os.environ, azure_native.FOLDER: str(self.folder)},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        port = int(self.process.stdout.readline())
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self.stub = provider_pb2_grpc.ResourceProviderStub(self.channel)

    def close(self) -> None:
        self.channel.close()
        self.process.kill()
        self.process.communicate()

    def script(self, **troubles: Any) -> None:
        (self.folder / "troubles.json").write_text(json.dumps(troubles))

    def calls(self) -> list[dict[str, Any]]:
        lines = (self.folder / "calls.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def resources(self) -> dict[str, Any]:
        return json.loads((self.folder / "resources.json").read_text())["resources"]

    def check(self, token: str, inputs: dict[str, Any]) -> list[str]:
        answer = self._ask(self.stub.Check, pb.CheckRequest(urn=urn(token), news=pack(inputs)))
        return [failure.reason for failure in answer.failures]

    def create(self, token: str, *, preview: bool = False, **inputs: Any) -> tuple[str, Any]:
        """The id and the outputs."""
        request = pb.CreateRequest(urn=urn(token), properties=pack(inputs), preview=preview)
        answer = self._ask(self.stub.Create, request)
        return answer.id, unpack(answer.properties)

    def update(self, token: str, identifier: str, **inputs: Any) -> dict[str, Any]:
        request = pb.UpdateRequest(urn=urn(token), id=identifier, news=pack(inputs))
        return unpack(self._ask(self.stub.Update, request).properties)

    def read(self, token: str, identifier: str, **known: Any) -> Any:
        given = {name: pack(each) for name, each in known.items()}
        return self._ask(self.stub.Read, pb.ReadRequest(urn=urn(token), id=identifier, **given))

    def delete(self, token: str, identifier: str) -> None:
        self._ask(self.stub.Delete, pb.DeleteRequest(urn=urn(token), id=identifier))

    def diff(
        self,
        token: str,
        old: dict[str, Any],
        new: dict[str, Any],
        seen: dict[str, Any] | None = None,
    ) -> dict[str, str]:
        """Path -> its kind of change in words, `replace` for whole paths of a replacement."""
        request = pb.DiffRequest(
            urn=urn(token), old_inputs=pack(old), news=pack(new), olds=pack(seen or {})
        )
        answer = self._ask(self.stub.Diff, request)
        assert answer.deleteBeforeReplace == bool(answer.replaces)
        assert (answer.changes == pb.DiffResponse.DIFF_SOME) == bool(answer.detailedDiff)
        names = pb.PropertyDiff.Kind.Name
        return {path: names(each.kind) for path, each in answer.detailedDiff.items()}

    def stop(self) -> None:
        self.stub.Cancel(Empty())

    def _ask(self, method: Any, request: Any) -> Any:
        try:
            return method(request, timeout=HANG_S)
        except grpc.RpcError as error:
            raise Asked(error.details()) from error


def urn(token: str) -> str:
    return f"urn:pulumi:dev::trainyard::trainyard:cloud:Platform$azure-native:{token}::name"


@pytest.fixture
def azure(tmp_path: Path) -> Iterator[Client]:
    """A provider of an empty subscription."""
    client = Client(tmp_path)
    yield client
    client.close()


@pytest.fixture
def group(azure: Client) -> Client:
    """A provider of a subscription with a resource group `rg`."""
    azure.create("resources:ResourceGroup", **GROUP)
    return azure


@pytest.fixture(scope="module")
def module_azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """One provider for the tests that change nothing."""
    client = Client(tmp_path_factory.mktemp("azure"))
    yield client
    client.close()
