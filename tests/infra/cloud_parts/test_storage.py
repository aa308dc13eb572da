"""The storage accounts of each stage, every input of every resource."""

from __future__ import annotations

import pytest

from infra.cloud.storage import Storage, StorageArgs
from tests.infra.cloud_parts.conftest import interfaces_of

GROUPS = {stage: f"rg-acme-{stage}" for stage in ("dev", "test", "prod")}
DAYS = {"dev": 7, "test": 7, "prod": 30}
OLD = {"dev": 7, "test": 14, "prod": 90}


def data(context, group, opts):
    args = StorageArgs(
        context=context,
        account_name="stdata",
        containers=("data", "runs"),
        purpose="data",
        resource_group=group,
        interfaces=interfaces_of(group),
    )
    return Storage("data", args, opts)


def workspace(context, group, opts):
    args = StorageArgs(
        context=context,
        account_name="stml",
        containers=(),
        purpose="workspace",
        resource_group=group,
        interfaces=interfaces_of(group),
    )
    return Storage("workspace", args, opts)


def account(stage: str, name: str) -> dict[str, object]:
    """Build the inputs that all stages share, with those of one stage."""
    allowed = [
        {"iPAddressOrRange": address, "action": "Allow"}
        for address in (("198.51.100.7", "203.0.113.0/24") if stage == "dev" else ())
    ]
    common = {
        "accountName": name,
        "resourceGroupName": GROUPS[stage],
        "location": "westeurope",
        "kind": "StorageV2",
        "accessTier": "Hot",
        "allowBlobPublicAccess": False,
        "allowCrossTenantReplication": False,
        "allowSharedKeyAccess": False,
        "defaultToOAuthAuthentication": True,
        "enableHttpsTrafficOnly": True,
        "enableNfsV3": False,
        "isHnsEnabled": False,
        "isLocalUserEnabled": False,
        "isSftpEnabled": False,
        "minimumTlsVersion": "TLS1_2",
        "networkRuleSet": {
            "defaultAction": "Deny",
            "bypass": "AzureServices",
            "ipRules": allowed,
        },
        "tags": {
            "project": "trainyard",
            "stack": stage,
            "stage": stage,
            "owner": "platform@example.com",
        },
    }
    own = {
        "dev": {
            "sku": {"name": "Standard_LRS"},
            "publicNetworkAccess": "Enabled",
            "sasPolicy": {"sasExpirationPeriod": "1.00:00:00", "expirationAction": "Log"},
            "encryption": {
                "keySource": "Microsoft.Storage",
                "requireInfrastructureEncryption": False,
            },
        },
        "test": {
            "sku": {"name": "Standard_ZRS"},
            "publicNetworkAccess": "Disabled",
            "allowedCopyScope": "AAD",
            "sasPolicy": {"sasExpirationPeriod": "1.00:00:00", "expirationAction": "Block"},
            "encryption": {
                "keySource": "Microsoft.Storage",
                "requireInfrastructureEncryption": False,
            },
        },
        "prod": {
            "sku": {"name": "Standard_GZRS"},
            "publicNetworkAccess": "Disabled",
            "allowedCopyScope": "AAD",
            "sasPolicy": {"sasExpirationPeriod": "1.00:00:00", "expirationAction": "Block"},
            "encryption": {
                "keySource": "Microsoft.Storage",
                "requireInfrastructureEncryption": True,
            },
        },
    }
    return common | own[stage]


def within(stage: str, name: str) -> dict[str, str]:
    return {"accountName": name, "resourceGroupName": GROUPS[stage]}


def deleted(stage: str) -> dict[str, object]:
    return {"enabled": True, "days": DAYS[stage]}


def rule(name, blob_types, actions, prefixes=None) -> dict[str, object]:
    filters = {"blobTypes": blob_types} | ({"prefixMatch": prefixes} if prefixes else {})
    return {
        "name": name,
        "enabled": True,
        "type": "Lifecycle",
        "definition": {"actions": actions, "filters": filters},
    }


def old_versions(stage: str) -> list[dict[str, object]]:
    if stage != "prod":
        return []
    return [
        rule(
            "oldVersions",
            ["blockBlob", "appendBlob"],
            {"version": {"delete": {"daysAfterCreationGreaterThan": 90}}},
        )
    ]


@pytest.mark.parametrize("stage", ["dev", "test", "prod"])
def test_the_data_account_is_closed_and_keeps_what_is_deleted(record, stage):
    recorded = record(stage, data)
    after = {"daysAfterModificationGreaterThan": OLD[stage]}

    assert recorded.inputs() == {
        "data-account": account(stage, "stdata"),
        "data-blobs": {
            **within(stage, "stdata"),
            "blobServicesName": "default",
            "deleteRetentionPolicy": deleted(stage),
            "containerDeleteRetentionPolicy": deleted(stage),
            "isVersioningEnabled": stage == "prod",
        },
        "data-files": {
            **within(stage, "stdata"),
            "fileServicesName": "default",
            "shareDeleteRetentionPolicy": deleted(stage),
        },
        "data-data": {
            **within(stage, "stdata"),
            "containerName": "data",
            "publicAccess": "None",
        },
        "data-runs": {
            **within(stage, "stdata"),
            "containerName": "runs",
            "publicAccess": "None",
        },
        "data-lifecycle": {
            **within(stage, "stdata"),
            "managementPolicyName": "default",
            "policy": {
                "rules": [
                    rule(
                        "temporary",
                        ["blockBlob", "appendBlob"],
                        {"baseBlob": {"delete": after}},
                        ["data/tmp/", "runs/tmp/"],
                    ),
                    rule(
                        "oldCheckpoints",
                        ["blockBlob"],
                        {"baseBlob": {"tierToCool": after}},
                        ["runs/checkpoints/"],
                    ),
                    *old_versions(stage),
                ]
            },
        },
    }


@pytest.mark.parametrize("stage", ["dev", "test", "prod"])
def test_the_workspaces_account_has_no_container_of_ours_and_lets_the_studio_in(record, stage):
    recorded = record(stage, workspace)
    after = {"daysAfterModificationGreaterThan": OLD[stage]}

    assert recorded.inputs() == {
        "workspace-account": account(stage, "stml"),
        "workspace-blobs": {
            **within(stage, "stml"),
            "blobServicesName": "default",
            "cors": {
                "corsRules": [
                    {
                        "allowedOrigins": ["https://ml.azure.com", "https://*.ml.azure.com"],
                        "allowedMethods": [
                            "GET",
                            "HEAD",
                            "POST",
                            "PUT",
                            "DELETE",
                            "OPTIONS",
                            "PATCH",
                        ],
                        "allowedHeaders": ["*"],
                        "exposedHeaders": ["*"],
                        "maxAgeInSeconds": 1800,
                    }
                ]
            },
            "deleteRetentionPolicy": deleted(stage),
            "containerDeleteRetentionPolicy": deleted(stage),
            "isVersioningEnabled": stage == "prod",
        },
        "workspace-files": {
            **within(stage, "stml"),
            "fileServicesName": "default",
            "shareDeleteRetentionPolicy": deleted(stage),
        },
        "workspace-lifecycle": {
            **within(stage, "stml"),
            "managementPolicyName": "default",
            "policy": {
                "rules": [
                    rule(
                        "oldRuns",
                        ["blockBlob"],
                        {"baseBlob": {"tierToCool": after}},
                        ["azureml/"],
                    ),
                    *old_versions(stage),
                ]
            },
        },
    }


@pytest.mark.parametrize(
    ("stage", "is_retained"), [("dev", False), ("test", False), ("prod", True)]
)
def test_containers_alone_outlive_their_account_and_only_in_prod(record, stage, is_retained):
    recorded = record(stage, data)

    retained = {name: bool(seen.options.retain_on_delete) for name, seen in recorded.seen.items()}
    containers = {name for name, is_kept in retained.items() if is_kept}
    assert containers == ({"data-data", "data-runs"} if is_retained else set())


def test_what_is_in_an_account_is_made_again_with_it_old_before_new(record):
    recorded = record("test", data)

    inside = {name: seen for name, seen in recorded.seen.items() if "accountName" in seen.inputs}
    inside.pop("data-account")
    assert sorted(inside) == [
        "data-blobs",
        "data-data",
        "data-files",
        "data-lifecycle",
        "data-runs",
    ]
    for name, seen in inside.items():
        assert "data-account" in {other._name for other in seen.options.replace_with}, name
        assert seen.options.delete_before_replace, name
