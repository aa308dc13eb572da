"""Lists the values that rules on one property must refuse, and the rules that rightly join in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FOREIGN = "99999999-9999-4999-8999-999999999999"
# What a property rule must refuse, where turning a boolean around does not say it.
WRONG: Mapping[str, tuple[Any, ...]] = {
    "storage-minimum-tls": ("TLS1_0", "TLS1_1"),
    "storage-container-private": ("Blob", "Container"),
    "storage-public-network": ("SecuredByPerimeter", "enabled by mistake"),
    "storage-firewall-denies": ("Allow",),
    "storage-firewall-bypass": ("Logging",),
    "storage-firewall-closed": (
        [{"iPAddressOrRange": "198.51.100.7", "action": "Allow"}],
        [{"iPAddressOrRange": "203.0.113.0/24"}],
    ),
    "storage-firewall-no-instances": (
        [{"tenantId": FOREIGN, "resourceId": "*"}],
        [{"resourceId": "/subscriptions/*/providers/Microsoft.Synapse/workspaces/*"}],
    ),
    "storage-sas-life": ("1.00:00:01", "31.00:00:00", "00:00:00", "a month"),
    "storage-sas-refused": ("Allow",),
    "storage-copy-scope": ("Anywhere",),
    "storage-redundancy": ("Premium_LRS",),
    "storage-blob-soft-delete-days": (6,),
    "storage-container-soft-delete-days": (6,),
    "storage-share-soft-delete-days": (6,),
    "vault-soft-delete-days": (6,),
    "vault-purgeable": (True, False),
    "vault-firewall-denies": ("Allow",),
    "vault-firewall-bypass": ("None",),
    "vault-firewall-closed": ([{"value": "198.51.100.7"}], [{"value": "203.0.113.0/24"}]),
    "vault-public-network": ("SecuredByPerimeter",),
    "vault-secret-expires": (0,),
    "vault-secret-typed": ("",),
    "registry-sku": ("Basic",),
    "registry-public-network": ("yes",),
    "registry-firewall-denies": ("Allow",),
    "registry-firewall-closed": ([{"iPAddressOrRange": "198.51.100.7"}], [{"action": "Allow"}]),
    "registry-no-export": ("enabled",),
    "registry-retention": ("disabled",),
    "registry-retention-days": (14,),
    "registry-zone-redundant": ("Disabled",),
    "workspace-public-network": ("enabled by mistake",),
    "workspace-managed-network": ("Disabled",),
    "workspace-datastores-by-identity": ("AccessKey", "UserDelegationSAS"),
    "cluster-is-amlcompute": ("ComputeInstance", "VirtualMachine"),
    "cluster-no-ssh-port": ("Enabled", "NotSpecified"),
    "cluster-no-ssh-user": (
        {"adminUserName": "azureuser", "adminUserPassword": "x"},
        {"adminUserName": "azureuser", "adminUserSshPublicKey": "ssh-ed25519 A"},
    ),
    "cluster-scales-to-zero": ("1", 0, "00"),
    "cluster-max-nodes": (0, 1001, "2"),
    "cluster-idle-time": ("PT15M1S", "P1D", "PT0S", "soon"),
    "cluster-priority": ("Spot",),
    "access-receiver-type": ("User", "ForeignGroup"),
    "lock-level": ("ReadOnly", "NotSpecified"),
}
# Beyond what is wrong everywhere: what a stage must refuse.
WRONG_IN_STAGE: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "test": {
        "storage-public-network": ("Enabled",),
        "storage-sas-refused": ("Log",),
        "storage-redundancy": ("Standard_LRS", "Standard_GRS"),
        "vault-public-network": ("Enabled",),
        "registry-sku": ("Standard",),
        "registry-public-network": ("Enabled",),
        "workspace-public-network": ("Enabled",),
        "workspace-managed-network": ("AllowInternetOutbound",),
        "cluster-max-nodes": (5,),
        "cluster-idle-time": ("PT5M1S",),
        "cluster-priority": ("Dedicated",),
    },
    "prod": {
        "storage-public-network": ("Enabled",),
        "storage-sas-refused": ("Log",),
        "storage-redundancy": ("Standard_LRS", "Standard_ZRS"),
        "storage-blob-soft-delete-days": (29,),
        "storage-container-soft-delete-days": (29,),
        "storage-share-soft-delete-days": (29,),
        "vault-soft-delete-days": (89,),
        "vault-public-network": ("Enabled",),
        "registry-sku": ("Standard",),
        "registry-public-network": ("Enabled",),
        "workspace-public-network": ("Enabled",),
        "workspace-managed-network": ("AllowInternetOutbound",),
    },
    "dev": {"cluster-max-nodes": (3,), "cluster-idle-time": ("PT2M1S",)},
}
# Rules that rightly speak too, whatever the mutant.
COMPANIONS: Mapping[str, frozenset[str]] = {
    # A firewall that lets in the world is not closed either, and the other way round.
    "storage-firewall-narrow": frozenset({"storage-firewall-closed"}),
    "vault-firewall-narrow": frozenset({"vault-firewall-closed"}),
    # Nobody acts as the workspace's identity then: its roles are a stranger's.
    "workspace-identity": frozenset({"access-own-identities"}),
    # What is no cluster's is to be protected.
    "cluster-identity": frozenset({"access-own-identities", "protect-all"}),
    # Clusters live in the managed network that is off.
    "workspace-managed-network": frozenset({"cluster-in-network"}),
    "cluster-in-network": frozenset({"workspace-managed-network"}),
    # Which account is the workspace's own is said by the workspace.
    "workspace-own-storage": frozenset(
        {"access-cluster-scopes", "access-workspace-scopes", "storage-private-endpoint-file"}
    ),
    # Such a role is in no table either, nor is such a scope.
    "access-no-rights-to-give": frozenset({"access-cluster-roles", "access-workspace-roles"}),
    # Metrics are no reads, and go to where those do.
    "storage-diagnostics": frozenset({"logs-audit-apart"}),
    # The second cluster's identity is nobody's then.
    "access-cluster-reads-data": frozenset({"access-own-identities", "protect-all"}),
    "access-within-group": frozenset({"access-cluster-scopes", "access-workspace-scopes"}),
    # A person is no group, and no identity of the stack.
    "access-receiver-type": frozenset({"access-own-identities", "protect-all"}),
    # A lock that lies on the group lies on nothing else.
    "lock-not-on-group": frozenset({"lock-registry", "lock-storage", "lock-vault"}),
    # The rule on a container's temporary files looks into the lifecycle that is gone.
    "storage-lifecycle-declared": frozenset(
        {"storage-old-checkpoints-cool", "storage-temporary-files-end"}
    ),
    # The declared minimum is a tag.
    "tags": frozenset({"cluster-minimum-told", "cluster-scales-to-zero"}),
    "cluster-scales-to-zero": frozenset({"cluster-minimum-told"}),
    # So many nodes are too many for one cluster, too.
    "cluster-max-nodes": frozenset({"cluster-nodes-together"}),
    "cluster-nodes-together": frozenset({"cluster-max-nodes"}),
    # Such a rule is no private endpoint.
    "workspace-reaches-data-privately": frozenset({"workspace-outbound-private"}),
    # A type that nobody knows is not protected in prod, and has no tags.
    "stack-known-types": frozenset({"protect-all"}),
    "budget-declared": frozenset({"stack-known-types"}),
}
