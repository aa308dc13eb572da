"""The container registry of each stage, every input."""

from __future__ import annotations

import pytest

from infra.cloud.registry import Registry, RegistryArgs
from tests.infra.cloud_parts.conftest import interfaces_of

OWN = {
    "dev": {
        "sku": {"name": "Standard"},
        "publicNetworkAccess": "Enabled",
        "zoneRedundancy": "Disabled",
    },
    "test": {
        "sku": {"name": "Premium"},
        "publicNetworkAccess": "Disabled",
        "networkRuleSet": {"defaultAction": "Deny"},
        "zoneRedundancy": "Disabled",
    },
    "prod": {
        "sku": {"name": "Premium"},
        "publicNetworkAccess": "Disabled",
        "networkRuleSet": {"defaultAction": "Deny"},
        "zoneRedundancy": "Enabled",
        "policies": {
            "exportPolicy": {"status": "disabled"},
            "retentionPolicy": {"days": 15, "status": "enabled"},
        },
    },
}


@pytest.mark.parametrize("stage", ["dev", "test", "prod"])
def test_the_registry_has_no_password_and_what_only_premium_takes_only_there(record, stage):
    made = []

    def registry(context, group, opts):
        args = RegistryArgs(context=context, resource_group=group, interfaces=interfaces_of(group))
        made.append(Registry("registry", args, opts))

    recorded = record(stage, registry)
    name = recorded.context.names.registry

    assert recorded.inputs() == {
        "registry-registry": {
            "registryName": name,
            "resourceGroupName": f"rg-acme-{stage}",
            "location": "westeurope",
            "adminUserEnabled": False,
            "anonymousPullEnabled": False,
            "networkRuleBypassOptions": "AzureServices",
            "tags": {
                "project": "trainyard",
                "stack": stage,
                "stage": stage,
                "owner": "platform@example.com",
            },
            **OWN[stage],
        }
    }
