"""The stand-in behaves towards the engine as the provider azure-native does, as we read its source.

What a change means is our reading of the provider's diff.go (tests/fakes/azure_native/differences.py):
these tests hold the stand-in to that reading, and nobody the reading to the provider.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pulumi.runtime.proto import provider_pb2 as pb

from tests.busy import wait_until
from tests.fakes import azure_native
from tests.fakes.azure_native.wire import UNKNOWN, UNKNOWN_TEXT, pack, unpack
from tests.infra.standin.conftest import ACCOUNT, Asked, urn

# Proofs of the stand-in itself.
pytestmark = pytest.mark.faults

GROUP_ID = f"/subscriptions/{azure_native.SUBSCRIPTION_ID}/resourceGroups/rg"
ACCOUNT_ID = f"{GROUP_ID}/providers/Microsoft.Storage/storageAccounts/yarddata"
IDENTITY = {"resourceName": "id-yard", "resourceGroupName": "rg", "location": "westeurope"}
WORKSPACE = {
    "workspaceName": "mlw",
    "resourceGroupName": "rg",
    "location": "westeurope",
    "identity": {"type": "SystemAssigned"},
}
COMPUTE = {
    "computeName": "gpu",
    "workspaceName": "mlw",
    "resourceGroupName": "rg",
    "location": "westeurope",
    "properties": {
        "computeType": "AmlCompute",
        "properties": {
            "vmSize": "Standard_D2s_v3",
            "vmPriority": "Dedicated",
            "scaleSettings": {"minNodeCount": 0, "maxNodeCount": 2},
        },
    },
}


def test_at_preview_inputs_are_known_and_the_services_answers_are_not(module_azure):
    identifier, outputs = module_azure.create(
        "managedidentity:UserAssignedIdentity", preview=True, **IDENTITY
    )
    unknown = {name for name, each in outputs.items() if each is UNKNOWN}
    assert identifier == ""
    assert unknown == {"name", "type", "principalId", "clientId", "tenantId"}
    assert outputs["location"] == "westeurope"
    assert not (module_azure.folder / "resources.json").exists()


def test_a_resource_is_what_was_asked_for_and_what_the_service_adds(group):
    identifier, outputs = group.create("storage:StorageAccount", **ACCOUNT)
    assert identifier == ACCOUNT_ID
    assert outputs["primaryEndpoints"]["blob"] == "https://yarddata.blob.core.windows.net/"
    assert {name: outputs[name] for name in ("name", "type", "kind", "provisioningState")} == {
        "name": "yarddata",
        "type": "Microsoft.Storage/storageAccounts",
        "kind": "StorageV2",
        "provisioningState": "Succeeded",
    }


def test_a_wrong_declaration_is_told_before_anything_is_made(module_azure):
    assert module_azure.check("storage:StorageAccount", {**ACCOUNT, "kind": "Shed"}) == [
        "kind: 'Shed' is none of Storage, StorageV2, BlobStorage, FileStorage, BlockBlobStorage"
    ]
    assert module_azure.check("storage:StorageAccount", {**ACCOUNT, "accountName": UNKNOWN}) == []
    missing = {key: each for key, each in ACCOUNT.items() if key != "accountName"}
    assert module_azure.check("storage:StorageAccount", missing) == [
        "missing required property 'accountName'"
    ]


@pytest.mark.parametrize(
    ("changed", "kinds"),
    [
        ({}, {}),
        ({"tags": {"a": "b"}}, {"tags": "ADD"}),
        ({"location": "West Europe"}, {}),
        ({"location": "northeurope"}, {"location": "UPDATE_REPLACE"}),
        ({"accountName": "other"}, {"accountName": "UPDATE_REPLACE"}),
        ({"isHnsEnabled": True}, {"isHnsEnabled": "ADD_REPLACE"}),
        ({"location": None}, {"location": "DELETE"}),
        ({"sku": {"name": "Standard_ZRS"}}, {"sku.name": "UPDATE"}),
        ({"sku": UNKNOWN}, {"sku": "UPDATE"}),
    ],
)
def test_changes_of_an_account(module_azure, changed, kinds):
    assert module_azure.diff("storage:StorageAccount", ACCOUNT, {**ACCOUNT, **changed}) == kinds


def test_what_azure_has_told_already_may_be_declared(module_azure):
    new = {**ACCOUNT, "isHnsEnabled": True}
    for told, kind in ((True, "ADD"), (False, "ADD_REPLACE")):
        seen = {**ACCOUNT, "isHnsEnabled": told}
        kinds = module_azure.diff("storage:StorageAccount", ACCOUNT, new, seen)
        assert kinds == {"isHnsEnabled": kind}


def test_what_is_fixed_inside_of_a_property_replaces(module_azure):
    old = {**COMPUTE, "properties": {**COMPUTE["properties"], "computeLocation": "westeurope"}}
    new = {**COMPUTE, "properties": {**COMPUTE["properties"], "disableLocalAuth": True}}
    assert module_azure.diff("machinelearningservices:Compute", old, new) == {
        "properties.computeLocation": "DELETE",
        "properties.disableLocalAuth": "ADD_REPLACE",
    }


def test_size_and_priority_of_a_cluster_are_not_in_the_providers_table(module_azure):
    inner = {**COMPUTE["properties"]["properties"], "vmSize": "x", "vmPriority": "LowPriority"}
    changed = {**COMPUTE, "properties": {**COMPUTE["properties"], "properties": inner}}
    assert module_azure.diff("machinelearningservices:Compute", COMPUTE, changed) == {
        "properties.properties.vmSize": "UPDATE",
        "properties.properties.vmPriority": "UPDATE",
    }


def test_a_subnet_of_an_endpoint_and_a_principal_of_a_role_replace(module_azure):
    old, new = {"subnet": {"id": "a"}}, {"subnet": {"id": "b"}}
    assert module_azure.diff("network:PrivateEndpoint", old, new) == {"subnet.id": "UPDATE_REPLACE"}
    old, new = {"principalId": "a"}, {"principalId": UNKNOWN}
    assert module_azure.diff("authorization:RoleAssignment", old, new) == {
        "principalId": "UPDATE_REPLACE"
    }


def test_what_moved_in_azure_moves_the_inputs_and_nothing_else(group):
    identifier, before = group.create("storage:StorageAccount", **ACCOUNT)
    group.update("storage:StorageAccount", identifier, **ACCOUNT, accessTier="Cool")
    now = group.read("storage:StorageAccount", identifier, properties=before, inputs=ACCOUNT)
    assert unpack(now.inputs) == {**ACCOUNT, "accessTier": "Cool"}
    assert unpack(now.properties) == {**before, "accessTier": "Cool"}


def test_what_only_the_service_sets_never_becomes_an_input(group):
    """The nodes that a cluster has at the moment, an endpoint."""
    group.create("machinelearningservices:Workspace", **WORKSPACE)
    identifier, before = group.create("machinelearningservices:Compute", **COMPUTE)
    moved = json.loads((group.folder / "resources.json").read_text())
    live = moved["resources"][identifier.lower()]["outputs"]["properties"]["properties"]
    live["currentNodeCount"] = 2
    live["scaleSettings"]["minNodeCount"] = 1
    (group.folder / "resources.json").write_text(json.dumps(moved))
    now = group.read(
        "machinelearningservices:Compute", identifier, properties=before, inputs=COMPUTE
    )
    inner = COMPUTE["properties"]["properties"]
    scale = {"minNodeCount": 1, "maxNodeCount": 2}
    assert unpack(now.inputs)["properties"]["properties"] == {**inner, "scaleSettings": scale}


def test_a_managed_network_becomes_active_with_the_first_cluster(group):
    network = {"managedNetwork": {"isolationMode": "AllowInternetOutbound"}}
    token = "machinelearningservices:Workspace"
    identifier, before = group.create(token, **WORKSPACE, **network)
    assert before["managedNetwork"]["status"]["status"] == "Inactive"
    group.create("machinelearningservices:Compute", **COMPUTE)
    given = {**WORKSPACE, **network}
    now = group.read(token, identifier, properties=before, inputs=given)
    status = {"status": "Active", "sparkReady": False}
    assert unpack(now.inputs)["managedNetwork"] == {**network["managedNetwork"], "status": status}


def test_what_is_gone_is_read_as_gone(group):
    identifier, _ = group.create("storage:StorageAccount", **ACCOUNT)
    group.delete("storage:StorageAccount", identifier)
    group.delete("storage:StorageAccount", identifier)
    assert group.read("storage:StorageAccount", identifier).id == ""


def test_a_resource_that_is_only_known_by_its_id_is_read_whole(group):
    group.create("storage:StorageAccount", **ACCOUNT)
    identity = {"type": "UserAssigned", "userAssignedIdentities": [f"{GROUP_ID}/x"]}
    group.update("storage:StorageAccount", ACCOUNT_ID, **ACCOUNT, identity=identity)
    found = unpack(group.read("storage:StorageAccount", ACCOUNT_ID).inputs)
    assert found == {**ACCOUNT, "identity": identity, "azureApiVersion": "2024-01-01"}


def test_a_refusal_reaches_the_engine_in_the_services_words(module_azure):
    with pytest.raises(Asked, match='Status=404 Code="ResourceGroupNotFound"'):
        module_azure.create("storage:StorageAccount", **ACCOUNT)


def test_a_cancelled_provider_gives_up_what_hangs(group):
    group.script(failures=[azure_native.HANG])
    token = urn("storage:StorageAccount")
    request = group.stub.Create.future(pb.CreateRequest(urn=token, properties=pack(ACCOUNT)))
    wait_until(
        lambda: any(call.get("hangs") for call in group.calls()),
        what=group.calls,
        over=lambda: request.exception() if request.done() else None,
    )
    group.stop()
    assert request.exception().details() == "context canceled"


def test_it_ends_with_the_engine_that_started_it(tmp_path):
    azure_native.install(tmp_path, sys.executable, judging=False)
    program = tmp_path / azure_native.PROGRAM
    code = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([{str(program)!r}], stdout=subprocess.PIPE)\n"
        "child.stdout.readline(); print(child.pid, flush=True); time.sleep(60)\n"
    )
    engine = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, azure_native.FOLDER: str(tmp_path / "azure")},
        stdout=subprocess.PIPE,
        text=True,
    )
    provider = int(engine.stdout.readline())
    engine.send_signal(signal.SIGKILL)
    engine.communicate()
    wait_until(lambda: not runs(provider))


def runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_answer_of_the_account_that_asks(module_azure):
    request = pb.InvokeRequest(tok="azure-native:authorization:getClientConfig")
    answer = module_azure.stub.Invoke(request)
    assert unpack(getattr(answer, "return"))["subscriptionId"] == azure_native.SUBSCRIPTION_ID


def test_what_is_unknown_travels_as_pulumis_word_for_it():
    assert pack({"a": UNKNOWN})["a"] == UNKNOWN_TEXT
    assert unpack(pack({"a": [UNKNOWN], "b": None, "c": 1.5, "d": 2})) == {
        "a": [UNKNOWN],
        "c": 1.5,
        "d": 2,
    }
