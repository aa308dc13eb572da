"""A dev stack on a private network: closed as test is, kept as dev is."""

from __future__ import annotations

from infra.cloud.network import Network, NetworkArgs
from infra.cloud.registry import Registry, RegistryArgs
from infra.cloud.storage import Storage, StorageArgs
from infra.cloud.vault import Vault, VaultArgs
from tests.infra.cloud_parts.conftest import interfaces_of


def test_a_private_dev_stack_is_closed_and_its_registry_takes_an_endpoint(record):
    def parts(context, group, opts):
        network = Network("net", NetworkArgs(context=context, resource_group=group), opts)
        interfaces = interfaces_of(group, network=network)
        Storage(
            "data",
            StorageArgs(
                context=context,
                account_name="stdata",
                containers=("data",),
                purpose="data",
                resource_group=group,
                interfaces=interfaces,
            ),
            opts,
        )
        vault = VaultArgs(
            context=context, tenant_id="t", resource_group=group, interfaces=interfaces
        )
        Vault("vault", vault, opts)
        registry = RegistryArgs(context=context, resource_group=group, interfaces=interfaces)
        Registry("registry", registry, opts)

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
    assert {"net-data-blob", "net-vault", "net-registry"} <= inputs.keys()
    assert inputs["net-vnet"]["addressSpace"] == {"addressPrefixes": ["10.81.0.0/24"]}
