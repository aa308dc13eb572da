"""Holds rules A: the container registry."""

from __future__ import annotations

from functools import partial

from infra.policy.conditions import at_least, empty, equal, one_of
from infra.policy.rules import ResourceRule, in_private, in_prod, property_rule

REGISTRY = "azure-native:containerregistry:Registry"

_registry = partial(property_rule, REGISTRY)

RULES: tuple[ResourceRule, ...] = (
    _registry(
        "registry-no-admin",
        "A1",
        "adminUserEnabled",
        equal(False),
        sources="CKV_AZURE_137, AZR-000005, dc921057",
    ),
    _registry(
        "registry-no-anonymous-pull",
        "A2",
        "anonymousPullEnabled",
        equal(False),
        sources="CKV_AZURE_138, AZR-000401, 9f2dea28",
    ),
    _registry(
        "registry-sku",
        "A3",
        "sku.name",
        {
            "dev": one_of("Standard", "Premium"),
            "test": equal("Premium"),
            "prod": equal("Premium"),
        },
        sources="CKV_AZURE_163, AZR-000006, bd560fc0",
        why="a private endpoint takes Premium",
    ),
    _registry(
        "registry-public-network",
        "A4",
        "publicNetworkAccess",
        {
            "dev": one_of("Enabled", "Disabled"),
            "test": equal("Disabled"),
            "prod": equal("Disabled"),
        },
        sources="CKV_AZURE_139, AZR-000402, 0fdf0491",
    ),
    _registry(
        "registry-firewall-denies",
        "A4",
        "networkRuleSet.defaultAction",
        in_private(equal("Deny")),
        sources="d0793b48",
    ),
    _registry(
        "registry-firewall-closed",
        "A4",
        "networkRuleSet.ipRules",
        in_private(empty()),
        sources="own",
        why="the network is private",
    ),
    _registry(
        "registry-no-export",
        "A5",
        "policies.exportPolicy.status",
        in_prod(equal("disabled")),
        sources="524b0254, AVM",
    ),
    _registry(
        "registry-retention",
        "A7",
        "policies.retentionPolicy.status",
        in_prod(equal("enabled")),
        sources="CKV_AZURE_167 (TF), AZR-000010, AVM",
    ),
    _registry(
        "registry-retention-days",
        "A7",
        "policies.retentionPolicy.days",
        in_prod(at_least(15)),
        sources="AZR-000010, AVM",
    ),
    _registry(
        "registry-zone-redundant",
        "A8",
        "zoneRedundancy",
        in_prod(equal("Enabled")),
        sources="CKV_AZURE_233, AVM",
    ),
)
