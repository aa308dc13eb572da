"""Holds the rules on private endpoints, DNS names, security groups and the clusters' network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from infra.policy import access, key_vault, machine_learning, registry, storage
from infra.policy.rules import (
    Finding,
    Resource,
    ResourceRule,
    Rule,
    Stack,
    StackRule,
    Stage,
    look_up,
    show,
)

ENDPOINT = "azure-native:network:PrivateEndpoint"
ENDPOINT_ZONES = "azure-native:network:PrivateDnsZoneGroup"
SECURITY_GROUP = "azure-native:network:NetworkSecurityGroup"
PRIVATE: tuple[Stage, ...] = ("test", "prod")
_ANYWHERE = {"*", "any", "internet", "0.0.0.0/0"}


def _connections(stack: Stack) -> Iterator[tuple[str, str]]:
    """List the targets of private endpoints: id in small letters, and sub-resource."""
    for endpoint in stack.of(ENDPOINT):
        for each in look_up(endpoint.inputs, "privateLinkServiceConnections") or ():
            for group in look_up(each, "groupIds") or ():
                yield str(look_up(each, "privateLinkServiceId")).lower(), str(group)


def _endpoint_rule(
    name: str, row: str, what: str, group: str, *, sources: str, purpose: str = ""
) -> StackRule:
    """Build the rule that a resource has its endpoint; `purpose` narrows it to one storage account."""

    def check(stack: Stack) -> Iterable[Finding]:
        reached = [target for target, found in _connections(stack) if found == group]
        for each in stack.of(what):
            if purpose and access.kind_of_account(each, stack) != purpose:
                continue
            if not any(target.endswith(each.id_ending) for target in reached):
                yield Finding(urn=each.urn, message=f"no private endpoint leads to its {group!r}")

    return StackRule(
        name=name,
        row=row,
        says=f"A private endpoint leads to each {purpose or what.rpartition(':')[2]} ({group})",
        sources=sources,
        check=check,
        stages=PRIVATE,
    )


def _endpoints_have_names(stack: Stack) -> Iterable[Finding]:
    named = {
        str(each.inputs.get("privateEndpointName")).lower() for each in stack.of(ENDPOINT_ZONES)
    }
    for each in stack.of(ENDPOINT):
        if str(each.inputs.get("privateEndpointName")).lower() not in named:
            yield Finding(
                urn=each.urn,
                message="no zone group: its name would still lead to the public address",
            )


def _clusters_in_network(stack: Stack) -> Iterable[Finding]:
    managed = {
        str(each.inputs.get("workspaceName")).lower()
        for each in stack.of(machine_learning.WORKSPACE)
        if look_up(each.inputs, "managedNetwork.isolationMode") not in {None, "Disabled"}
    }
    for each in stack.of(machine_learning.COMPUTE):
        inside = str(each.inputs.get("workspaceName")).lower() in managed
        if not inside and not look_up(each.inputs, "properties.properties.subnet.id"):
            yield Finding(
                urn=each.urn, message="its workspace has no managed network, and it no subnet"
            )


def _nobody_comes_in(group: Resource) -> Iterable[str]:
    for rule in look_up(group.inputs, "securityRules") or ():
        sources = [
            look_up(rule, "sourceAddressPrefix"),
            *(look_up(rule, "sourceAddressPrefixes") or ()),
        ]
        opens = look_up(rule, "access") == "Allow" and look_up(rule, "direction") == "Inbound"
        if opens and any(str(source).lower() in _ANYWHERE for source in sources):
            yield f"securityRules: {show(look_up(rule, 'name'))} lets the internet in"


RULES: tuple[Rule, ...] = (
    _endpoint_rule(
        "storage-private-endpoint",
        "S9",
        storage.ACCOUNT,
        "blob",
        sources="CKV2_AZURE_33 (TF), 6edd7eda",
    ),
    _endpoint_rule(
        "storage-private-endpoint-file",
        "S9",
        storage.ACCOUNT,
        "file",
        sources="6edd7eda",
        purpose="workspace account",
    ),
    _endpoint_rule(
        "vault-private-endpoint",
        "K9",
        key_vault.VAULT,
        "vault",
        sources="CKV2_AZURE_32 (TF), a6abeaec",
    ),
    _endpoint_rule("registry-private-endpoint", "A4", registry.REGISTRY, "registry", sources="own"),
    _endpoint_rule(
        "workspace-private-endpoint",
        "W1",
        machine_learning.WORKSPACE,
        "amlworkspace",
        sources="438c38d2, AVM",
    ),
    StackRule(
        name="endpoint-names",
        row="S9",
        says="Each private endpoint has its names in a private DNS zone",
        sources="own",
        check=_endpoints_have_names,
        stages=PRIVATE,
    ),
    ResourceRule(
        name="network-not-from-internet",
        row="S7",
        says="No security group lets the internet in",
        sources="CKV_AZURE_9, CKV_AZURE_10, CKV_AZURE_160, MCSB NS-1",
        types=(SECURITY_GROUP,),
        check=_nobody_comes_in,
        stages=PRIVATE,
    ),
    StackRule(
        name="cluster-in-network",
        row="C5",
        says="Clusters live in the workspace's managed network, or in a subnet",
        sources="AZR-000405, 7804b5c7",
        check=_clusters_in_network,
        stages=PRIVATE,
    ),
)
