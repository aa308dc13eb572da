"""Holds rules S: storage accounts, their containers, retention of deleted blobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, cast

from infra.policy.conditions import (
    Condition,
    at_least,
    empty,
    equal,
    is_narrow,
    lasting_at_most,
    matching,
    one_of,
)
from infra.policy.rules import (
    Resource,
    ResourceRule,
    Stage,
    in_private,
    in_prod,
    look_up,
    property_rule,
    show,
)

ACCOUNT = "azure-native:storage:StorageAccount"
CONTAINER = "azure-native:storage:BlobContainer"
BLOBS = "azure-native:storage:BlobServiceProperties"
FILES = "azure-native:storage:FileServiceProperties"
LIFECYCLE = "azure-native:storage:ManagementPolicy"
# Days after which temporary files are deleted and old checkpoints leave the hot tier.
OLD_DAYS: Mapping[Stage, int] = {"dev": 7, "test": 14, "prod": 90}

_account = partial(property_rule, ACCOUNT)
_blobs = partial(property_rule, BLOBS)
_files = partial(property_rule, FILES)
_week_or_month: Mapping[Stage, Condition] = {
    "dev": at_least(7),
    "test": at_least(7),
    "prod": at_least(30),
}

_OF_PROPERTIES = (
    _account(
        "storage-https-only",
        "S1",
        "enableHttpsTrafficOnly",
        equal(True),
        sources="CKV_AZURE_3, AZR-000196, 404c3081, MCSB DP-3",
    ),
    _account(
        "storage-minimum-tls",
        "S2",
        "minimumTlsVersion",
        equal("TLS1_2"),
        sources="CKV_AZURE_44, AZR-000200, fe83a0eb",
    ),
    _account(
        "storage-no-public-blobs",
        "S3",
        "allowBlobPublicAccess",
        equal(False),
        sources="CKV_AZURE_190, CKV2_AZURE_47 (TF), AZR-000198, 4fa4b6c0, AVM",
    ),
    property_rule(
        CONTAINER,
        "storage-container-private",
        "S4",
        "publicAccess",
        equal("None"),
        sources="CKV_AZURE_34, AZR-000199, AVM",
    ),
    _account(
        "storage-no-shared-key",
        "S5",
        "allowSharedKeyAccess",
        equal(False),
        sources="CKV2_AZURE_40 (TF), 8c6a50c6, MCSB IM-1",
    ),
    _account(
        "storage-public-network",
        "S7",
        "publicNetworkAccess",
        {
            "dev": one_of("Enabled", "Disabled"),
            "test": equal("Disabled"),
            "prod": equal("Disabled"),
        },
        sources="CKV_AZURE_59, b2982f36, MCSB NS-2",
    ),
    _account(
        "storage-firewall-denies",
        "S8",
        "networkRuleSet.defaultAction",
        equal("Deny"),
        sources="CKV_AZURE_35, AZR-000202, 34c877ad",
    ),
    _account(
        "storage-firewall-bypass",
        "S8",
        "networkRuleSet.bypass",
        equal("AzureServices"),
        sources="CKV_AZURE_36, c9d007d0",
    ),
    _account(
        "storage-firewall-closed",
        "S8",
        "networkRuleSet.ipRules",
        in_private(empty()),
        sources="own",
        why="the network is private",
    ),
    _account(
        "storage-firewall-no-instances",
        "S8",
        "networkRuleSet.resourceAccessRules",
        empty(),
        sources="own",
        why="they let in resources of other tenants too",
    ),
    _account(
        "storage-sas-life",
        "S10",
        "sasPolicy.sasExpirationPeriod",
        lasting_at_most("1.00:00:00"),
        sources="bc1b984e, 7aa1c9d5, CKV2_AZURE_41 (TF)",
    ),
    _account(
        "storage-sas-refused",
        "S10",
        "sasPolicy.expirationAction",
        {"dev": one_of("Log", "Block"), "test": equal("Block"), "prod": equal("Block")},
        sources="7aa1c9d5",
    ),
    _account(
        "storage-no-local-users",
        "S11",
        "isLocalUserEnabled",
        equal(False),
        sources="CKV_AZURE_244 (TF), AVM",
    ),
    _account(
        "storage-copy-scope",
        "S13",
        "allowedCopyScope",
        in_private(one_of("AAD", "PrivateLink")),
        sources="own",
    ),
    _account(
        "storage-encrypted-twice",
        "S14",
        "encryption.requireInfrastructureEncryption",
        in_prod(equal(True)),
        sources="4733ea7b, AVM",
    ),
    _account(
        "storage-redundancy",
        "S15",
        "sku.name",
        {
            "dev": matching("Standard_.*"),
            "test": one_of("Standard_ZRS", "Standard_GZRS", "Standard_RAGZRS"),
            "prod": one_of("Standard_GRS", "Standard_RAGRS", "Standard_GZRS", "Standard_RAGZRS"),
        },
        sources="CKV_AZURE_206, AZR-000195, bf045164, AVM",
    ),
    _blobs(
        "storage-blob-soft-delete",
        "S16",
        "deleteRetentionPolicy.enabled",
        equal(True),
        sources="AZR-000197, CKV2_AZURE_38 (TF), AVM",
    ),
    _blobs(
        "storage-blob-soft-delete-days",
        "S16",
        "deleteRetentionPolicy.days",
        _week_or_month,
        sources="AZR-000197, CKV2_AZURE_38 (TF), AVM",
    ),
    _blobs(
        "storage-container-soft-delete",
        "S17",
        "containerDeleteRetentionPolicy.enabled",
        equal(True),
        sources="AZR-000289, AVM",
    ),
    _blobs(
        "storage-container-soft-delete-days",
        "S17",
        "containerDeleteRetentionPolicy.days",
        _week_or_month,
        sources="AZR-000289, AVM",
    ),
    _blobs(
        "storage-versions-kept",
        "S18",
        "isVersioningEnabled",
        in_prod(equal(True)),
        sources="c36a325b",
    ),
    _files(
        "storage-share-soft-delete",
        "S19",
        "shareDeleteRetentionPolicy.enabled",
        equal(True),
        sources="AZR-000298, AVM",
    ),
    _files(
        "storage-share-soft-delete-days",
        "S19",
        "shareDeleteRetentionPolicy.days",
        _week_or_month,
        sources="AZR-000298, AVM",
    ),
)


def _narrow_addresses(account: Resource) -> Iterable[str]:
    for each in look_up(account.inputs, "networkRuleSet.ipRules") or ():
        addresses = look_up(each, "iPAddressOrRange")
        if not is_narrow(addresses):
            yield f"networkRuleSet.ipRules lets in {show(addresses)}, more than 65,536 addresses"


def _ends_old_versions(policy: Resource) -> Iterable[str]:
    if not any(days(rule, "version.delete") > 0 for rule in lifecycle_rules(policy)):
        yield "no enabled rule deletes old versions, which versioning piles up"


def lifecycle_rules(policy: Resource) -> list[Mapping[str, Any]]:
    """List the rules of a management policy that are in force."""
    rules = cast("list[Mapping[str, Any]]", look_up(policy.inputs, "policy.rules") or [])
    return [each for each in rules if each.get("enabled") is not False]


def days(rule: Mapping[str, Any], step: str) -> float:
    """Read after how many days a rule acts; 0 for never."""
    action = cast("Mapping[str, Any]", look_up(rule, f"definition.actions.{step}") or {})
    found = [each for name, each in action.items() if name.startswith("daysAfter")]
    return float(found[0]) if found else 0.0


def prefixes(rule: Mapping[str, Any]) -> list[str]:
    """List the prefixes that a rule applies to."""
    return list(look_up(rule, "definition.filters.prefixMatch") or [])


RULES: tuple[ResourceRule, ...] = (
    *_OF_PROPERTIES,
    ResourceRule(
        name="storage-firewall-narrow",
        row="S8",
        says="The firewall of an account lets in addresses and ranges up to /16",
        sources="own",
        types=(ACCOUNT,),
        check=_narrow_addresses,
    ),
    ResourceRule(
        name="storage-versions-end",
        row="S18",
        says="Where versions are kept, old ones are deleted some day",
        sources="own (cost)",
        types=(LIFECYCLE,),
        check=_ends_old_versions,
        stages=("prod",),
    ),
)
