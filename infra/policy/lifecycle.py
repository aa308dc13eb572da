"""Holds rules G5 to G7 and C9: budgets, locks and protection, tags."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from infra.naming import TAGS
from infra.policy import key_vault, registry, storage
from infra.policy.access import rights_of_clusters
from infra.policy.conditions import equal
from infra.policy.machine_learning import COMPUTE, INSIGHTS, WORKSPACE
from infra.policy.rules import (
    AZURE,
    GROUP,
    Finding,
    Resource,
    ResourceRule,
    Rule,
    Stack,
    StackRule,
    look_up,
    property_rule,
    show,
)

BUDGET = "azure-native:consumption:Budget"
LOCK = "azure-native:authorization:ManagementLockByScope"
# Types of ours that Azure takes tags for.
TAGGED = (
    GROUP,
    storage.ACCOUNT,
    key_vault.VAULT,
    registry.REGISTRY,
    WORKSPACE,
    COMPUTE,
    INSIGHTS,
    "azure-native:managedidentity:UserAssignedIdentity",
    "azure-native:monitor:ActionGroup",
    "azure-native:monitor:MetricAlert",
    "azure-native:network:NetworkSecurityGroup",
    "azure-native:network:PrivateEndpoint",
    "azure-native:network:VirtualNetwork",
    "azure-native:operationalinsights:Workspace",
    "azure-native:privatedns:PrivateZone",
)


def _has_budget(stack: Stack) -> Iterable[Finding]:
    if not stack.of(BUDGET):
        yield Finding(message="the stack declares no budget")


def _covers_group(stack: Stack) -> Iterable[Finding]:
    for each in stack.of(BUDGET):
        scope = str(each.inputs.get("scope"))
        if scope.lower().rpartition("/resourcegroups/")[2] not in stack.groups:
            yield Finding(
                urn=each.urn, message=f"scope {show(scope)} is not the stack's resource group"
            )


def _tells_somebody(budget: Resource) -> Iterable[str]:
    for each in _notifications(budget):
        if not each.get("contactEmails") and not each.get("contactGroups"):
            yield f"the notification at {each.get('threshold')} % has no receiver"


def _notifications(budget: Resource) -> list[Mapping[str, Any]]:
    found = cast("Mapping[str, Mapping[str, Any]]", look_up(budget.inputs, "notifications") or {})
    return list(found.values())


def _lock_rule(name: str, what: str) -> StackRule:
    def check(stack: Stack) -> Iterable[Finding]:
        locked = [str(each.inputs.get("scope")).lower() for each in stack.of(LOCK)]
        for each in stack.of(what):
            if not any(scope.endswith(each.id_ending) for scope in locked):
                yield Finding(urn=each.urn, message="no lock keeps it from being deleted by hand")

    return StackRule(
        name=name,
        row="G6",
        says=f"A lock keeps each {what.rpartition(':')[2]} from being deleted by hand",
        sources="AVM; azure-docs how-to-secure-training-vnet",
        check=check,
        stages=("prod",),
    )


def _not_on_group(lock: Resource) -> Iterable[str]:
    scope = str(lock.inputs.get("scope"))
    if "/providers/" not in scope.lower():
        yield f"scope {show(scope)} is a whole group: its clusters could not scale any more"


def _is_tagged(resource: Resource) -> Iterable[str]:
    tags = cast("Mapping[str, Any]", look_up(resource.inputs, "tags") or {})
    missing = [tag for tag in TAGS if not tags.get(tag)]
    if missing:
        yield f"tags are missing: {', '.join(missing)}"
    wanted = {"stack": resource.stack, "stage": resource.stack.partition("-")[0]}
    for tag, value in wanted.items():
        if tags.get(tag) not in {None, "", value}:
            yield f"tag {tag} is {show(tags[tag])}, but this is {value!r}"


def _all_is_protected(stack: Stack) -> Iterable[Finding]:
    passing = rights_of_clusters(stack)
    for each in stack.resources:
        is_meant = each.type.startswith(AZURE) and each.type != COMPUTE
        if is_meant and not each.protect and each.urn not in passing:
            yield Finding(
                urn=each.urn,
                message="protect is off: a destroy or a replacement would delete it",
            )


RULES: tuple[Rule, ...] = (
    StackRule(
        name="budget-declared",
        row="G5",
        says="A stack has a budget",
        sources="AVM consumption/budget",
        check=_has_budget,
    ),
    StackRule(
        name="budget-on-group",
        row="G5",
        says="The budget counts what the stack's resource group costs",
        sources="AVM consumption/budget/rg-scope",
        check=_covers_group,
    ),
    ResourceRule(
        name="budget-receivers",
        row="G5",
        says="Each warning of the budget has a receiver",
        sources="AVM consumption/budget",
        types=(BUDGET,),
        check=_tells_somebody,
    ),
    _lock_rule("lock-storage", storage.ACCOUNT),
    _lock_rule("lock-vault", key_vault.VAULT),
    _lock_rule("lock-registry", registry.REGISTRY),
    property_rule(
        LOCK,
        "lock-level",
        "G6",
        "level",
        equal("CanNotDelete"),
        sources="AVM",
        why="ReadOnly would stop Azure ML's own writes",
    ),
    ResourceRule(
        name="lock-not-on-group",
        row="G6",
        says="No lock lies on the resource group",
        sources="azure-docs how-to-secure-training-vnet",
        types=(LOCK,),
        check=_not_on_group,
    ),
    StackRule(
        name="protect-all",
        row="G7",
        says="All but the clusters, their identities and those' roles is protected",
        sources="own; Pulumi's option protect",
        check=_all_is_protected,
        stages=("prod",),
    ),
    ResourceRule(
        name="tags",
        row="C9",
        says="What takes tags has project, stack, stage and owner; stack and stage are the stack's own",
        sources="Azure.Resource.UseTags",
        types=TAGGED,
        check=_is_tagged,
    ),
)
