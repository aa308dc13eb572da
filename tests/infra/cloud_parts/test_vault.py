"""The key vault of each stage, every input."""

from __future__ import annotations

import pytest

from infra.cloud.vault import Vault, VaultArgs
from tests.infra.cloud_parts.conftest import interfaces_of

TENANT = "00000000-0000-0000-0000-000000000002"


def vault(context, group, opts):
    args = VaultArgs(
        context=context,
        tenant_id=TENANT,
        resource_group=group,
        interfaces=interfaces_of(group),
    )
    return Vault("vault", args, opts)


@pytest.mark.parametrize("stage", ["dev", "test", "prod"])
def test_the_vault_knows_roles_only_and_keeps_what_is_deleted(record, stage):
    recorded = record(stage, vault)
    allowed = ("198.51.100.7", "203.0.113.0/24") if stage == "dev" else ()
    own = {
        "dev": {"publicNetworkAccess": "Enabled", "softDeleteRetentionInDays": 7},
        "test": {
            "publicNetworkAccess": "Disabled",
            "softDeleteRetentionInDays": 7,
            "enablePurgeProtection": True,
        },
        "prod": {
            "publicNetworkAccess": "Disabled",
            "softDeleteRetentionInDays": 90,
            "enablePurgeProtection": True,
        },
    }

    assert recorded.inputs() == {
        "vault-vault": {
            "vaultName": recorded.context.names.key_vault,
            "resourceGroupName": f"rg-acme-{stage}",
            "location": "westeurope",
            "properties": {
                "tenantId": TENANT,
                "sku": {"family": "A", "name": "standard"},
                "accessPolicies": [],
                "enableRbacAuthorization": True,
                "enableSoftDelete": True,
                "enabledForDeployment": False,
                "enabledForDiskEncryption": False,
                "enabledForTemplateDeployment": False,
                "networkAcls": {
                    "defaultAction": "Deny",
                    "bypass": "AzureServices",
                    "ipRules": [{"value": address} for address in allowed],
                },
                **own[stage],
            },
            "tags": {
                "project": "trainyard",
                "stack": stage,
                "stage": stage,
                "owner": "platform@example.com",
            },
        }
    }
    assert bool(recorded.seen["vault-vault"].options.retain_on_delete) == (stage == "prod")


def test_the_vaults_id_is_plain_text_before_it_exists(record):
    made = []
    recorded = record("prod", lambda *args: made.append(vault(*args)))

    name = recorded.context.names.key_vault
    assert made[0].vault_id == (
        "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/rg-acme-prod"
        f"/providers/Microsoft.KeyVault/vaults/{name}"
    )
