"""Microsoft's models catch one planted violation of each kind, and nothing in a right request."""

from __future__ import annotations

import pytest

from tests.fakes.azure_native.judge import NEWER, judge, rest_body
from tests.fakes.azure_native.kinds import KINDS
from tests.fakes.azure_native.tables import ANSWER, read_tables
from tests.fakes.azure_native.wire import UNKNOWN
from tests.infra.standin.conftest import ACCOUNT

STORAGE = "azure-native:storage:StorageAccount"
COMPUTE = "azure-native:machinelearningservices:Compute"
CLUSTER = {
    "computeName": "gpu-1a2b3c",
    "workspaceName": "mlw-yard",
    "resourceGroupName": "rg",
    "location": "westeurope",
    "properties": {
        "computeType": "AmlCompute",
        "properties": {"vmSize": "Standard_D2s_v3", "scaleSettings": {"maxNodeCount": 2}},
    },
}


def nested(name, value):
    """A cluster with one more value under `properties.properties`."""
    inner = {**CLUSTER["properties"]["properties"], name: value}
    return {**CLUSTER, "properties": {**CLUSTER["properties"], "properties": inner}}


def test_every_resource_type_has_its_table():
    answers = {f"{token}{ANSWER}" for token, kind in KINDS.items() if kind.answer}
    assert read_tables().keys() == KINDS.keys() | answers


def test_right_requests_pass():
    assert judge(STORAGE, ACCOUNT) == []
    assert judge(COMPUTE, CLUSTER) == []


def test_what_is_not_known_yet_is_taken_for_right():
    assert judge(STORAGE, {**ACCOUNT, "accountName": UNKNOWN, "kind": UNKNOWN}) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"colour": "red"}, "colour: StorageAccountCreateParameters has no such property"),
        ({"kind": None}, "kind: required, and missing"),
        ({"kind": "Shed"}, "kind: 'Shed' is none of Storage, StorageV2,"),
        ({"sku": {"name": "Standard_LRS", "tier": "Standard"}}, "sku.tier: read-only"),
        ({"isHnsEnabled": "yes"}, "isHnsEnabled: 'yes' is no bool"),
        ({"sku": "Standard_LRS"}, "sku: 'Standard_LRS' is no Sku"),
        ({"tags": ["a"]}, "tags: ['a'] is no mapping"),
        ({"tags": {"a": 1}}, "tags.a: 1 is no str"),
        ({"networkRuleSet": {"bypass": "None"}}, "networkRuleSet.defaultAction: required"),
        (
            {"networkRuleSet": {"defaultAction": "Deny", "ipRules": "1.2.3.4"}},
            "networkRuleSet.ipRules: '1.2.3.4' is no list",
        ),
        (
            {"networkRuleSet": {"defaultAction": "Deny", "ipRules": [{}]}},
            "networkRuleSet.ipRules[0].ipAddressOrRange: required, and missing",
        ),
        ({"accountName": "Yard_Data"}, "accountName: 'Yard_Data' does not match ^[a-z0-9]+$"),
        ({"accountName": "y" * 25}, "accountName: its length 25 is not within 3 and 24"),
    ],
)
def test_an_account_with_one_wrong_value_is_caught(change, said):
    inputs = {key: each for key, each in {**ACCOUNT, **change}.items() if each is not None}
    (violation,) = judge(STORAGE, inputs)
    assert violation.startswith(said)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (nested("scaleSettings", {}), "properties.properties.scaleSettings.maxNodeCount: required"),
        (nested("vmPriority", "Cheap"), "properties.properties.vmPriority: 'Cheap' is none of"),
        (nested("currentNodeCount", 1), "properties.properties.currentNodeCount: read-only"),
        (nested("vmSize", 4), "properties.properties.vmSize: 4 is no str"),
        (
            {**CLUSTER, "properties": {"computeType": "Mainframe"}},
            "properties.computeType: 'Mainframe' is none of",
        ),
        ({**CLUSTER, "computeName": "gpu-123456"}, "computeName: 'gpu-123456' does not match"),
    ],
)
def test_a_cluster_with_one_wrong_value_is_caught(inputs, said):
    (violation,) = judge(COMPUTE, inputs)
    assert violation.startswith(said)


def test_lengths_and_ranges_are_held():
    token = "azure-native:storage:BlobServiceProperties"
    inputs = {
        "accountName": "yarddata",
        "resourceGroupName": "rg",
        "blobServicesName": "default",
        "deleteRetentionPolicy": {"enabled": True, "days": 366},
    }
    assert judge(token, inputs) == ["deleteRetentionPolicy.days: 366 is not within 1 and 365"]


def test_a_request_is_written_with_the_services_own_names():
    inputs = {
        **ACCOUNT,
        "enableHttpsTrafficOnly": True,
        "networkRuleSet": {"defaultAction": "Deny"},
        "identity": {"type": "UserAssigned", "userAssignedIdentities": ["/subscriptions/a"]},
        "tags": {"owner": "ada"},
    }
    assert rest_body(STORAGE, inputs) == (
        "Microsoft.Storage/storageAccounts",
        "2024-01-01",
        {"resourceGroupName": "rg", "accountName": "yarddata"},
        {
            "location": "westeurope",
            "kind": "StorageV2",
            "sku": {"name": "Standard_LRS"},
            "tags": {"owner": "ada"},
            "identity": {
                "type": "UserAssigned",
                "userAssignedIdentities": {"/subscriptions/a": {}},
            },
            "properties": {
                "supportsHttpsTrafficOnly": True,
                "networkAcls": {"defaultAction": "Deny"},
            },
        },
    )


def test_the_exceptions_are_few():
    assert len(NEWER) == 1
