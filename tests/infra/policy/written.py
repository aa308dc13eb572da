"""Mutants that a rule's path cannot tell: one by one, and all of a rule's together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from infra.policy import (
    key_vault,
    lifecycle,
    machine_learning,
    monitoring,
    network,
    registry,
    stack,
    storage,
)
from infra.policy.rules import Resource, ResourceRule, Rule, Stack, look_up
from tests.infra.policy import written_access
from tests.infra.policy.mutants import (
    GROUP_ID,
    Make,
    Mutant,
    Where,
    add,
    drop,
    edit,
    everything_unprotected,
    of_property,
    output,
    remove,
    retyped,
    set_path,
    unprotected,
)


def mutants_of(rule: Rule, whole: Stack) -> Iterator[Mutant]:
    """List the mutants of a rule on one stack."""
    if isinstance(rule, ResourceRule) and rule.path:
        yield from of_property(rule, whole)
    for make in WRITTEN.get(rule.name, ()):
        yield from make(whole)


def _leads_to(group: str) -> Where:
    return lambda each: (
        look_up(each.inputs, "privateLinkServiceConnections")[0]["groupIds"] == [group]
    )


def _is_about(kind: str) -> Where:
    return lambda each: (
        kind in str(each.inputs.get("resourceUri", each.inputs.get("scope"))).lower()
    )


def _is_audit(workspace: Resource) -> bool:
    return str(workspace.inputs["workspaceName"]).endswith("-audit")


def _own_audit(setting: Resource) -> str:
    return f"{setting.inputs['workspaceId']}-audit"


def _floods(setting: Resource) -> bool:
    return "StorageRead" in str(setting.inputs["logs"])


def _watches_nodes(alert: Resource) -> bool:
    return any(metric in str(alert.inputs["criteria"]) for metric in monitoring.ALERTS)


def _denies(assignment: Resource) -> bool:
    definition = str(assignment.inputs["policyDefinitionId"]).rpartition("/")[2]
    return definition in monitoring.DENIED


def _wide_open(key: str, *ranges: str) -> tuple[list[dict[str, str]], ...]:
    return tuple([{key: each}] for each in ranges)


def _endpoint_mutants(group: str) -> tuple[Make, ...]:
    target = "privateLinkServiceConnections.0.privateLinkServiceId"
    return (
        remove(network.ENDPOINT, where=_leads_to(group)),
        edit(network.ENDPOINT, target, f"{GROUP_ID}/providers/x/y/z", where=_leads_to(group)),
    )


def _diagnostics_mutants(kind: str) -> tuple[Make, ...]:
    about = _is_about(kind)
    return (
        remove(stack.DIAGNOSTICS, where=about),
        drop(stack.DIAGNOSTICS, "workspaceId", where=about),
        edit(stack.DIAGNOSTICS, "logs.0.enabled", value=False, where=about),
        edit(stack.DIAGNOSTICS, "logs.0.category", "AllMetrics", where=about),
    )


def _lock_mutants(kind: str) -> tuple[Make, ...]:
    about = _is_about(kind)
    elsewhere = f"{GROUP_ID}/providers/Microsoft.Sql/servers/sql"
    return (
        remove(lifecycle.LOCK, where=about),
        edit(lifecycle.LOCK, "scope", elsewhere, where=about),
    )


_RULES_OF_LIFECYCLE = "policy.rules"
_PREFIXES = ["definition", "filters", "prefixMatch"]


def _without_rules(doing: str) -> Callable[[Resource], list[Any]]:
    """A lifecycle without the rules whose text has a word."""
    return lambda policy: [
        rule for rule in look_up(policy.inputs, _RULES_OF_LIFECYCLE) if doing not in str(rule)
    ]


def _disabled(doing: str) -> Callable[[Resource], list[Any]]:
    """A lifecycle in which the rules whose text has a word do nothing."""
    return lambda policy: [
        {**rule, "enabled": doing not in str(rule)}
        for rule in look_up(policy.inputs, _RULES_OF_LIFECYCLE)
    ]


def _one_day_late(doing: str, step: str) -> Callable[[Resource], list[Any]]:
    """A lifecycle in which the rules whose text has a word take their step too late."""

    def rules(policy: Resource) -> list[Any]:
        late = {step: {"daysAfterModificationGreaterThan": storage.OLD_DAYS[policy.stage] + 1}}
        return [
            set_path(rule, ["definition", "actions", "baseBlob"], late)
            if doing in str(rule)
            else rule
            for rule in look_up(policy.inputs, _RULES_OF_LIFECYCLE)
        ]

    return rules


def _of_one_container(doing: str) -> Callable[[Resource], list[Any]]:
    """A lifecycle in which the rules whose text has a word look into one container only."""

    def rules(policy: Resource) -> list[Any]:
        return [
            set_path(rule, _PREFIXES, look_up(rule, ".".join(_PREFIXES))[:1])
            if doing in str(rule)
            else rule
            for rule in look_up(policy.inputs, _RULES_OF_LIFECYCLE)
        ]

    return rules


def _is_of_containers(policy: Resource) -> bool:
    return "checkpoints/" in str(policy.inputs)


_ANYWHERE_RULE = {
    "name": "ssh",
    "access": "Allow",
    "direction": "Inbound",
    "protocol": "Tcp",
    "destinationPortRange": "22",
}

_SCALE = machine_learning.SCALE
_OUTBOUND = "managedNetwork.outboundRules"


def _one_more_way_out(rule: Mapping[str, Any]) -> Make:
    return edit(
        machine_learning.WORKSPACE,
        _OUTBOUND,
        lambda each: {**look_up(each.inputs, _OUTBOUND), "more": rule},
    )


def _many_small_clusters(whole: Stack) -> Iterator[Mutant]:
    """Each as small as any, by one cluster more than the stage has nodes for."""
    one = whole.of(machine_learning.COMPUTE)[0]
    nodes = look_up(one.inputs, f"{_SCALE}.maxNodeCount")
    more = tuple(
        Resource(urn=f"{one.urn}-{number}", type=one.type, inputs=one.inputs, protect=False)
        for number in range(int(machine_learning.NODES_TOGETHER[whole.stage] // nodes))
    )
    resources = (*whole.resources, *more)
    stack = Stack(name=whole.name, resources=resources, outputs=whole.outputs)
    yield Mutant("many small clusters", stack, None)


def _one_node_too_many(whole: Stack) -> Iterator[Mutant]:
    """One cluster takes all nodes that the others leave of the stage's, and one more."""
    first, *others = whole.of(machine_learning.COMPUTE)
    taken = sum(look_up(each.inputs, f"{_SCALE}.maxNodeCount") for each in others)
    too_many = machine_learning.NODES_TOGETHER[whole.stage] - taken + 1
    one = edit(
        machine_learning.COMPUTE,
        f"{_SCALE}.maxNodeCount",
        too_many,
        where=lambda each: each is first,
    )
    yield from one(whole)


WRITTEN: Mapping[str, tuple[Make, ...]] = {
    "logs-audit-apart": (
        edit(monitoring.LOG_ANALYTICS, "workspaceCapping.dailyQuotaGb", 10, where=_is_audit),
        drop(monitoring.LOG_ANALYTICS, "workspaceCapping", where=_is_audit),
        edit(monitoring.DIAGNOSTICS, "workspaceId", _own_audit, where=_floods),
    ),
    "alerts-mailed": (
        remove(monitoring.METRIC_ALERT, where=_watches_nodes),
        edit(monitoring.METRIC_ALERT, "enabled", value=False, where=_watches_nodes),
        drop(monitoring.METRIC_ALERT, "actions", where=_watches_nodes),
        edit(monitoring.ACTION_GROUP, "emailReceivers", []),
        edit(monitoring.ACTION_GROUP, "enabled", value=False),
    ),
    "policy-denies-others": (
        remove(monitoring.POLICY_ASSIGNMENT, where=_denies),
        edit(monitoring.POLICY_ASSIGNMENT, "parameters.effect.value", "Audit", where=_denies),
        edit(monitoring.POLICY_ASSIGNMENT, "enforcementMode", "DoNotEnforce", where=_denies),
        edit(monitoring.POLICY_ASSIGNMENT, "scope", GROUP_ID, where=_denies),
    ),
    **written_access.WRITTEN,
    "storage-firewall-narrow": tuple(
        edit(storage.ACCOUNT, "networkRuleSet.ipRules", each)
        for each in _wide_open("iPAddressOrRange", "0.0.0.0/0", "203.0.0.0/15", "any")
    ),
    "storage-versions-end": (
        edit(storage.LIFECYCLE, _RULES_OF_LIFECYCLE, _without_rules("oldVersions")),
        edit(storage.LIFECYCLE, _RULES_OF_LIFECYCLE, _disabled("oldVersions")),
    ),
    "vault-firewall-narrow": tuple(
        edit(key_vault.VAULT, "properties.networkAcls.ipRules", each)
        for each in _wide_open("value", "0.0.0.0/0", "203.0.0.0/15")
    ),
    "vault-secret-expires": (
        add(key_vault.SECRET, "secret", {"properties": {"contentType": "token"}}),
        add(
            key_vault.SECRET,
            "secret",
            {"properties": {"contentType": "token", "attributes": {"expires": 0}}},
        ),
    ),
    "vault-secret-typed": (
        add(key_vault.SECRET, "secret", {"properties": {"attributes": {"expires": 1893456000}}}),
        add(
            key_vault.SECRET,
            "secret",
            {"properties": {"contentType": "", "attributes": {"expires": 1893456000}}},
        ),
    ),
    "workspace-reaches-data-privately": (
        drop(machine_learning.WORKSPACE, "managedNetwork.outboundRules"),
        edit(
            machine_learning.WORKSPACE,
            "managedNetwork.outboundRules",
            {"all": {"type": "FQDN", "destination": "*"}},
        ),
    ),
    "workspace-outbound-private": (
        _one_more_way_out({"type": "FQDN", "destination": "pypi.org"}),
        _one_more_way_out(
            {"type": "ServiceTag", "destination": {"serviceTag": "Internet", "portRanges": "443"}}
        ),
        _one_more_way_out(
            {
                "type": "PrivateEndpoint",
                "destination": {
                    "serviceResourceId": f"{GROUP_ID}/providers/Microsoft.Storage/storageAccounts/x"
                },
            }
        ),
        _one_more_way_out({"type": "PrivateEndpoint"}),
        _one_more_way_out({}),
    ),
    "cluster-minimum-told": (
        edit(machine_learning.COMPUTE, f"{_SCALE}.minNodeCount", 1),
        edit(machine_learning.COMPUTE, f"{_SCALE}.minNodeCount", "0"),
        drop(machine_learning.COMPUTE, f"{_SCALE}.minNodeCount"),
    ),
    "cluster-nodes-together": (
        _many_small_clusters,
        _one_node_too_many,
        edit(machine_learning.COMPUTE, f"{_SCALE}.maxNodeCount", 33),
    ),
    "workspace-identity": (
        edit(machine_learning.WORKSPACE, "identity.type", "SystemAssigned"),
        edit(machine_learning.WORKSPACE, "identity.userAssignedIdentities", []),
    ),
    "datastore-without-key": (
        edit(
            machine_learning.DATASTORE,
            "properties.credentials.credentialsType",
            "AccountKey",
        ),
        edit(machine_learning.DATASTORE, "properties.credentials.credentialsType", "Sas"),
        drop(machine_learning.DATASTORE, "properties.credentials"),
    ),
    "cluster-identity": (
        edit(machine_learning.COMPUTE, "identity.type", "SystemAssigned"),
        drop(machine_learning.COMPUTE, "identity"),
    ),
    "budget-declared": (
        remove(lifecycle.BUDGET),
        retyped(lifecycle.BUDGET, "azure-native:costmanagement:Budget"),
    ),
    "budget-on-group": (
        edit(lifecycle.BUDGET, "scope", GROUP_ID),
        edit(lifecycle.BUDGET, "scope", GROUP_ID.partition("/resourceGroups")[0]),
    ),
    "budget-receivers": (
        edit(
            lifecycle.BUDGET,
            "notifications",
            lambda each: {
                key: {**value, "contactEmails": []}
                for key, value in each.inputs["notifications"].items()
            },
        ),
        edit(
            lifecycle.BUDGET,
            "notifications",
            lambda each: {
                key: {inner: kept for inner, kept in value.items() if inner != "contactEmails"}
                for key, value in each.inputs["notifications"].items()
            },
        ),
    ),
    "lock-storage": _lock_mutants("storageaccounts"),
    "lock-vault": _lock_mutants("vaults"),
    "lock-registry": _lock_mutants("registries"),
    "lock-level": tuple(
        add(
            lifecycle.LOCK,
            "lock",
            {"scope": f"{GROUP_ID}/providers/Microsoft.KeyVault/vaults/x", **level},
        )
        for level in ({"level": "ReadOnly"}, {})
    ),
    "lock-not-on-group": (
        add(
            lifecycle.LOCK,
            "subscription",
            {"scope": GROUP_ID.partition("/resourceGroups")[0], "level": "CanNotDelete"},
        ),
        edit(lifecycle.LOCK, "scope", GROUP_ID),
        add(lifecycle.LOCK, "group", {"scope": GROUP_ID, "level": "CanNotDelete"}),
    ),
    "tags": (
        *(drop(what, "tags") for what in lifecycle.TAGGED),
        *(edit(what, "tags.owner", "") for what in lifecycle.TAGGED),
        *(edit(what, "tags.stack", "another") for what in lifecycle.TAGGED),
        *(edit(what, "tags.stage", "another") for what in lifecycle.TAGGED),
    ),
    "storage-private-endpoint": _endpoint_mutants("blob"),
    "storage-private-endpoint-file": _endpoint_mutants("file"),
    "vault-private-endpoint": _endpoint_mutants("vault"),
    "registry-private-endpoint": _endpoint_mutants("registry"),
    "workspace-private-endpoint": _endpoint_mutants("amlworkspace"),
    "endpoint-names": (
        remove(network.ENDPOINT_ZONES),
        edit(network.ENDPOINT_ZONES, "privateEndpointName", "another"),
    ),
    "network-not-from-internet": (
        edit(
            network.SECURITY_GROUP,
            "securityRules",
            [{**_ANYWHERE_RULE, "sourceAddressPrefix": "Internet"}],
        ),
        edit(
            network.SECURITY_GROUP,
            "securityRules",
            [{**_ANYWHERE_RULE, "sourceAddressPrefixes": ["10.0.0.0/8", "*"]}],
        ),
    ),
    "storage-diagnostics": _diagnostics_mutants("storageaccounts"),
    "vault-diagnostics": _diagnostics_mutants("vaults"),
    "workspace-diagnostics": _diagnostics_mutants("machinelearningservices"),
    "workspace-own-storage": (
        edit(
            machine_learning.WORKSPACE,
            "storageAccount",
            f"{GROUP_ID}/providers/Microsoft.Storage/storageAccounts/x",
        ),
        drop(machine_learning.WORKSPACE, "storageAccount"),
    ),
    "workspace-own-vault": (
        edit(
            machine_learning.WORKSPACE,
            "keyVault",
            f"{GROUP_ID}/providers/Microsoft.KeyVault/vaults/x",
        ),
        drop(machine_learning.WORKSPACE, "keyVault"),
    ),
    "workspace-own-registry": (
        edit(
            machine_learning.WORKSPACE,
            "containerRegistry",
            f"{GROUP_ID}/providers/Microsoft.ContainerRegistry/registries/x",
        ),
        # Azure ML would make one of its own, with an admin.
        drop(machine_learning.WORKSPACE, "containerRegistry"),
    ),
    "workspace-own-insights": (
        edit(
            machine_learning.WORKSPACE,
            "applicationInsights",
            f"{GROUP_ID}/providers/Microsoft.Insights/components/x",
        ),
        drop(machine_learning.WORKSPACE, "applicationInsights"),
    ),
    "cluster-in-network": (
        edit(machine_learning.WORKSPACE, "managedNetwork.isolationMode", "Disabled"),
        edit(machine_learning.COMPUTE, "workspaceName", "another"),
    ),
    "storage-blobs-declared": (
        remove(storage.BLOBS),
        edit(storage.BLOBS, "accountName", "another"),
    ),
    "storage-files-declared": (
        remove(storage.FILES),
        edit(storage.FILES, "accountName", "another"),
    ),
    "storage-lifecycle-declared": (
        remove(storage.LIFECYCLE),
        edit(storage.LIFECYCLE, "accountName", "another"),
    ),
    "storage-temporary-files-end": (
        edit(
            storage.LIFECYCLE,
            _RULES_OF_LIFECYCLE,
            _without_rules("tmp/"),
            where=_is_of_containers,
        ),
        edit(
            storage.LIFECYCLE,
            _RULES_OF_LIFECYCLE,
            _of_one_container("tmp/"),
            where=_is_of_containers,
        ),
        edit(
            storage.LIFECYCLE,
            _RULES_OF_LIFECYCLE,
            _one_day_late("tmp/", "delete"),
            where=_is_of_containers,
        ),
    ),
    "storage-old-checkpoints-cool": (
        edit(
            storage.LIFECYCLE,
            _RULES_OF_LIFECYCLE,
            _without_rules("checkpoints/"),
            where=_is_of_containers,
        ),
        edit(
            storage.LIFECYCLE,
            _RULES_OF_LIFECYCLE,
            _one_day_late("checkpoints/", "tierToCool"),
            where=_is_of_containers,
        ),
    ),
    "stack-outputs-without-secrets": (
        output("url", "https://x.blob.core.windows.net/data?sv=2026&sig=" + "a%2B" * 12 + "%3D"),
        output("key", "a" * 86 + "=="),
        output("insights", "InstrumentationKey=00000000-0000-0000-0000-000000000000"),
        output("token", "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiIxMjM0NTYifQ.c2lnbmF0dXJl"),
    ),
    "stack-known-types": (
        add("azure-native:network:PublicIPAddress", "address", {}),
        add("azure-native:compute:VirtualMachine", "machine", {}),
        add("command:local:Command", "script", {}),
    ),
    "protect-all": (
        unprotected(
            lifecycle.GROUP,
            storage.ACCOUNT,
            storage.CONTAINER,
            key_vault.VAULT,
            registry.REGISTRY,
            machine_learning.WORKSPACE,
            lifecycle.BUDGET,
            lifecycle.LOCK,
            machine_learning.INSIGHTS,
            stack.DIAGNOSTICS,
            network.ENDPOINT,
            storage.LIFECYCLE,
        ),
        everything_unprotected,
    ),
}
