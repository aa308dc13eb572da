"""Holds the rules on a stack as a whole: resources it must have, and how they fit together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from infra.naming import MIN_NODES_TAG
from infra.policy import (
    access,
    key_vault,
    lifecycle,
    machine_learning,
    monitoring,
    network,
    registry,
    storage,
)
from infra.policy.monitoring import DIAGNOSTICS, LOG_ANALYTICS
from infra.policy.rules import (
    Finding,
    Rule,
    Stack,
    StackRule,
    look_up,
    show,
)

# Every type that this pack has looked at. Another one needs a line here, and rules of its own.
KNOWN_TYPES = {
    *lifecycle.TAGGED,
    lifecycle.BUDGET,
    lifecycle.LOCK,
    access.ASSIGNMENT,
    key_vault.SECRET,
    machine_learning.DATASTORE,
    storage.BLOBS,
    storage.CONTAINER,
    storage.FILES,
    storage.LIFECYCLE,
    DIAGNOSTICS,
    monitoring.POLICY_ASSIGNMENT,
    network.ENDPOINT_ZONES,
    "azure-native:network:Subnet",
    "azure-native:privatedns:VirtualNetworkLink",
}
_OURS = ("trainyard:", "pulumi:")
# Shapes of credentials: SAS, account keys, connection strings, tokens, private keys.
_SECRETS = {
    "a shared access signature": re.compile(r"\bsig=[\w%+/=-]{20,}", re.IGNORECASE),
    "a connection string": re.compile(
        r"\b(AccountKey|SharedAccessKey|SharedAccessSignature|InstrumentationKey|Password)\s*=",
        re.IGNORECASE,
    ),
    "an account key": re.compile(r"(?<![\w+/=])[A-Za-z0-9+/]{86}==(?![\w+/=])"),
    "a token": re.compile(r"\beyJ[\w-]{10,}\.[\w-]{10,}\."),
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
}


def _diagnostics_rule(
    name: str, row: str, what: str, *, below: str, categories: Sequence[str], sources: str
) -> StackRule:
    def check(stack: Stack) -> Iterable[Finding]:
        for each in stack.of(what):
            found = set(_logged(stack, each.id_ending + below))
            missing = [category for category in categories if category not in found]
            if missing:
                yield Finding(
                    urn=each.urn,
                    message=f"not sent to Log Analytics: {', '.join(missing)}",
                )

    return StackRule(
        name=name,
        row=row,
        says=f"Log Analytics gets {', '.join(categories)} of each {what.rpartition(':')[2]}",
        sources=sources,
        check=check,
        stages=network.PRIVATE,
    )


def _logged(stack: Stack, target_ending: str) -> Iterator[str]:
    for setting in stack.of(DIAGNOSTICS):
        if not stack.has(setting.inputs.get("workspaceId"), LOG_ANALYTICS):
            continue
        if str(setting.inputs.get("resourceUri")).lower().endswith(target_ending):
            for log in look_up(setting.inputs, "logs") or ():
                if look_up(log, "enabled") is True:
                    yield str(look_up(log, "category"))


def _own_part_rule(name: str, key: str, what: str) -> StackRule:
    def check(stack: Stack) -> Iterable[Finding]:
        for each in stack.of(machine_learning.WORKSPACE):
            if not stack.has(each.inputs.get(key), what):
                value = show(each.inputs.get(key))
                yield Finding(urn=each.urn, message=f"{key} is {value}, none of this stack's")

    return StackRule(
        name=name,
        row="W6",
        says=f"The workspace's {key} is a {what.rpartition(':')[2]} of this stack, or one "
        "that its settings name",
        sources="own",
        check=check,
    )


def _services_are_declared(what: str, name: str, row: str) -> StackRule:
    def check(stack: Stack) -> Iterable[Finding]:
        declared = {str(each.inputs.get("accountName")).lower() for each in stack.of(what)}
        for each in stack.of(storage.ACCOUNT):
            if str(each.inputs.get("accountName")).lower() not in declared:
                yield Finding(
                    urn=each.urn,
                    message=f"no {what.rpartition(':')[2]}: Azure's own settings would hold",
                )

    return StackRule(
        name=name,
        row=row,
        says=f"Each StorageAccount has its {what.rpartition(':')[2]} declared",
        sources="own",
        check=check,
    )


def _temporary_files_end(stack: Stack) -> Iterable[Finding]:
    most = storage.OLD_DAYS[stack.stage]
    for container in stack.of(storage.CONTAINER):
        account, name = (container.inputs.get(key) for key in ("accountName", "containerName"))
        if not any(
            prefix.startswith(f"{name}/") and 0 < storage.days(rule, "baseBlob.delete") <= most
            for policy in stack.of(storage.LIFECYCLE)
            if policy.inputs.get("accountName") == account
            for rule in storage.lifecycle_rules(policy)
            for prefix in storage.prefixes(rule)
        ):
            yield Finding(
                urn=container.urn,
                message=f"no rule of its account deletes temporary files in it within {most} days",
            )


def _old_checkpoints_cool(stack: Stack) -> Iterable[Finding]:
    most = storage.OLD_DAYS[stack.stage]
    cooling = ("baseBlob.tierToCool", "baseBlob.tierToCold", "baseBlob.delete")
    if not any(
        "checkpoints/" in prefix and 0 < storage.days(rule, step) <= most
        for policy in stack.of(storage.LIFECYCLE)
        for rule in storage.lifecycle_rules(policy)
        for prefix in storage.prefixes(rule)
        for step in cooling
    ):
        yield Finding(message=f"no lifecycle rule cools or deletes checkpoints within {most} days")


def _outbound_is_private(stack: Stack) -> Iterable[Finding]:
    for workspace in stack.of(machine_learning.WORKSPACE):
        declared = cast(
            "Mapping[str, Any]", look_up(workspace.inputs, "managedNetwork.outboundRules") or {}
        )
        for name, rule in declared.items():
            kind, target = look_up(rule, "type"), look_up(rule, "destination.serviceResourceId")
            if kind != "PrivateEndpoint":
                message = (
                    f"outbound rule {name!r} is of type {show(kind)}: a way out of the network"
                )
                yield Finding(urn=workspace.urn, message=message)
            elif not stack.has(target):
                message = f"outbound rule {name!r} leads to {show(target)}, none of this stack's"
                yield Finding(urn=workspace.urn, message=message)


def _minimum_is_told(stack: Stack) -> Iterable[Finding]:
    # Live, the minimum is `launch cluster resume`'s and the engine shows that one.
    for each in stack.of(machine_learning.COMPUTE) if not stack.is_up else ():
        minimum = look_up(each.inputs, f"{machine_learning.SCALE}.minNodeCount")
        told = look_up(each.inputs, f"tags.{MIN_NODES_TAG}")
        if show(minimum) != told:
            yield Finding(
                urn=each.urn,
                message=f"minNodeCount is {show(minimum)}, but the tag "
                f"{MIN_NODES_TAG} says {show(told)}",
            )


def _few_nodes_together(stack: Stack) -> Iterable[Finding]:
    most = machine_learning.NODES_TOGETHER[stack.stage]
    counts = (
        look_up(each.inputs, f"{machine_learning.SCALE}.maxNodeCount")
        for each in stack.of(machine_learning.COMPUTE)
    )
    # What is no number is `cluster-max-nodes`' to refuse.
    nodes = sum(each for each in counts if isinstance(each, int | float))
    if nodes > most:
        yield Finding(message=f"its clusters have {show(nodes)} nodes, but {most} are the most")


def _only_known_types(stack: Stack) -> Iterable[Finding]:
    for each in stack.resources:
        if each.type not in KNOWN_TYPES and not each.type.startswith(_OURS):
            yield Finding(urn=each.urn, message=f"no rule has looked at the type {each.type}")


def _outputs_hold_no_secret(stack: Stack) -> Iterable[Finding]:
    for path, text in _texts(stack.outputs, ""):
        for what, shape in _SECRETS.items():
            if shape.search(text):
                yield Finding(message=f"output {path} holds what looks like {what}")


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, inner in cast("Mapping[str, Any]", value).items():
            yield from _texts(inner, f"{path}.{key}".lstrip("."))
    elif isinstance(value, Sequence):
        for index, inner in enumerate(cast("Sequence[Any]", value)):
            yield from _texts(inner, f"{path}[{index}]")


RULES: tuple[Rule, ...] = (
    _diagnostics_rule(
        "storage-diagnostics",
        "S22",
        storage.ACCOUNT,
        below="/blobservices/default",
        categories=("StorageRead", "StorageWrite", "StorageDelete"),
        sources="CKV_AZURE_33, CKV2_AZURE_21 (TF), MCSB LT-4",
    ),
    _diagnostics_rule(
        "vault-diagnostics",
        "K9",
        key_vault.VAULT,
        below="",
        categories=("AuditEvent",),
        sources="AZR-000119, cf820ca0",
    ),
    _diagnostics_rule(
        "workspace-diagnostics",
        "W9",
        machine_learning.WORKSPACE,
        below="",
        categories=("AmlComputeClusterEvent", "AmlComputeJobEvent", "AmlRunStatusChangedEvent"),
        sources="afe0c3be, MCSB LT-4",
    ),
    _own_part_rule("workspace-own-storage", "storageAccount", storage.ACCOUNT),
    _own_part_rule("workspace-own-vault", "keyVault", key_vault.VAULT),
    _own_part_rule("workspace-own-registry", "containerRegistry", registry.REGISTRY),
    _own_part_rule("workspace-own-insights", "applicationInsights", machine_learning.INSIGHTS),
    _services_are_declared(storage.BLOBS, "storage-blobs-declared", "S16"),
    _services_are_declared(storage.FILES, "storage-files-declared", "S19"),
    _services_are_declared(storage.LIFECYCLE, "storage-lifecycle-declared", "S21"),
    StackRule(
        name="storage-temporary-files-end",
        row="S21",
        says="Temporary files of a container are deleted after 7 days in dev, 14 in test, 90 in prod",
        sources="own (cost)",
        check=_temporary_files_end,
    ),
    StackRule(
        name="storage-old-checkpoints-cool",
        row="S21",
        says="Checkpoints leave the hot tier after 7 days in dev, 14 in test, 90 in prod",
        sources="own (cost)",
        check=_old_checkpoints_cool,
    ),
    StackRule(
        name="workspace-outbound-private",
        row="W2",
        says="Outbound rules of the managed network are private endpoints of this stack's resources"
        " (a host's rule opens a way out and starts an Azure Firewall)",
        sources="own",
        check=_outbound_is_private,
    ),
    StackRule(
        name="cluster-minimum-told",
        row="C6",
        says="Where nothing is up yet, Compute.properties.properties.scaleSettings.minNodeCount is "
        "what the tag min-nodes says",
        sources="CKV_AZURE_150 (TF)",
        check=_minimum_is_told,
    ),
    StackRule(
        name="cluster-nodes-together",
        row="C7",
        says="All clusters together have at most 8 nodes in dev, 32 in test",
        sources="own (cost)",
        check=_few_nodes_together,
        stages=("dev", "test"),
    ),
    StackRule(
        name="stack-outputs-without-secrets",
        row="G8",
        says="No output holds a key, a SAS, a connection string or a token",
        sources="AZR-000408",
        check=_outputs_hold_no_secret,
    ),
    StackRule(
        name="stack-known-types",
        row="G8",
        says="Every resource is of a type that this pack has looked at",
        sources="own",
        check=_only_known_types,
    ),
)
