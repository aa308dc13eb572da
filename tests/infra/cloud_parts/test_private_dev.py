"""A dev stack on a private network: closed as test is, kept as dev is."""

from __future__ import annotations

from infra.cloud.network import Network, NetworkArgs
from infra.cloud.registry import Registry, RegistryArgs
from infra.cloud.storage import Storage, StorageArgs
from infra.cloud.vault import Vault, VaultArgs


def test_a_private_dev_stack_is_closed_and_its_registry_takes_an_endpoint(record):
    def parts(context, group, opts):
        Storage(
            "data",
            StorageArgs(
                context=context,
                account_name="stdata",
                containers=("data",),
                purpose="data",
                resource_group=group,
            ),
            opts,
        )
        Vault("vault", VaultArgs(context=context, tenant_id="t", resource_group=group), opts)
        Registry("registry", RegistryArgs(context=context, resource_group=group), opts)
        Network("net", NetworkArgs(context=context, resource_group=group), opts)

    inputs = record("private dev", parts).inputs()

    account = inputs["data-account"]
    assert (account["publicNetworkAccess"], account["networkRuleSet"], account["sku"]) == (
        "Disabled",
        {"defaultAction": "Deny", "bypass": "AzureServices", "ipRules": []},
        {"name": "Standard_LRS"},
    )
    vault = inputs["vault-vault"]["properties"]
    assert (vault["publicNetworkAccess"], vault["networkAcls"]["ipRules"]) == ("Disabled", [])
    assert "enablePurgeProtection" not in vault
    registry = inputs["registry-registry"]
    assert (registry["publicNetworkAccess"], registry["sku"]) == ("Disabled", {"name": "Premium"})
    assert inputs["net-vnet"]["addressSpace"] == {"addressPrefixes": ["10.81.0.0/24"]}
