"""Holds rules K: the vault, and secrets and keys that a stack declares."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from infra.policy.conditions import (
    absent,
    at_least,
    empty,
    equal,
    given,
    is_narrow,
    one_of,
)
from infra.policy.rules import (
    Resource,
    ResourceRule,
    in_private,
    look_up,
    property_rule,
    show,
)

VAULT = "azure-native:keyvault:Vault"
SECRET = "azure-native:keyvault:Secret"  # noqa: S105  # a type's name

_vault = partial(property_rule, VAULT)


def _narrow_addresses(vault: Resource) -> Iterable[str]:
    for each in look_up(vault.inputs, "properties.networkAcls.ipRules") or ():
        addresses = look_up(each, "value")
        if not is_narrow(addresses):
            yield f"networkAcls.ipRules lets in {show(addresses)}, more than 65,536 addresses"


RULES: tuple[ResourceRule, ...] = (
    _vault(
        "vault-soft-delete",
        "K1",
        "properties.enableSoftDelete",
        equal(True),
        sources="CKV_AZURE_111, AZR-000124, 1e66c121",
    ),
    _vault(
        "vault-soft-delete-days",
        "K1",
        "properties.softDeleteRetentionInDays",
        {"dev": at_least(7), "test": at_least(7), "prod": at_least(90)},
        sources="CKV_AZURE_42, 1e66c121, AVM",
    ),
    _vault(
        "vault-purge-protection",
        "K2",
        "properties.enablePurgeProtection",
        in_private(equal(True)),
        sources="CKV_AZURE_110, CKV_AZURE_42, AZR-000125, 0b60c0b2",
    ),
    _vault(
        "vault-purgeable",
        "K2",
        "properties.enablePurgeProtection",
        {"dev": absent()},
        sources="own",
        why="it cannot be undone, and a dev stack comes and goes",
    ),
    _vault(
        "vault-rbac",
        "K3",
        "properties.enableRbacAuthorization",
        equal(True),
        sources="AZR-000388, 12d4fa5e, AVM",
    ),
    _vault(
        "vault-firewall-denies",
        "K4",
        "properties.networkAcls.defaultAction",
        equal("Deny"),
        sources="CKV_AZURE_109, AZR-000355, 55615ac9",
    ),
    _vault(
        "vault-firewall-bypass",
        "K4",
        "properties.networkAcls.bypass",
        equal("AzureServices"),
        sources="AZR-000355",
    ),
    _vault(
        "vault-firewall-closed",
        "K4",
        "properties.networkAcls.ipRules",
        in_private(empty()),
        sources="own",
        why="the network is private",
    ),
    ResourceRule(
        name="vault-firewall-narrow",
        row="K4",
        says="The firewall of a vault lets in addresses and ranges up to /16",
        sources="own",
        types=(VAULT,),
        check=_narrow_addresses,
    ),
    _vault(
        "vault-public-network",
        "K5",
        "properties.publicNetworkAccess",
        {
            "dev": one_of("Enabled", "Disabled"),
            "test": equal("Disabled"),
            "prod": equal("Disabled"),
        },
        sources="CKV_AZURE_189, 405c5871",
    ),
    property_rule(
        SECRET,
        "vault-secret-expires",
        "K7",
        "properties.attributes.expires",
        given(),
        sources="CKV_AZURE_41, 98728c90",
    ),
    property_rule(
        SECRET,
        "vault-secret-typed",
        "K7",
        "properties.contentType",
        given(),
        sources="CKV_AZURE_114, 75262d3e",
    ),
)
