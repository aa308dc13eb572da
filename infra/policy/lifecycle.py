"""Holds rules G5 to G7 and C9: budgets, locks and protection, tags."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, cast

from infra.policy import key_vault, registry, storage
from infra.policy.access import GROUP
from infra.policy.conditions import at_least, equal
from infra.policy.machine_learning import COMPUTE, INSIGHTS, WORKSPACE
from infra.policy.rules import (
    AZURE,
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
THRESHOLDS = (50, 75, 90, 100, 110)
TAGS = ("project", "stack", "stage", "owner")
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
    "azure-native:network:NetworkSecurityGroup",
    "azure-native:network:PrivateEndpoint",
    "azure-native:network:VirtualNetwork",
    "azure-native:operationalinsights:Workspace",
    "azure-native:privatedns:PrivateZone",
)

_budget = partial(property_rule, BUDGET)


def _has_budget(stack: Stack) -> Iterable[Finding]:
    if not stack.of(BUDGET):
        yield Finding(message="the stack declares no budget")


def _covers_group(stack: Stack) -> Iterable[Finding]:
    groups = {str(each.inputs.get("resourceGroupName")).lower() for each in stack.of(GROUP)}
    for each in stack.of(BUDGET):
        scope = str(each.inputs.get("scope"))
        if scope.lower().rpartition("/resourcegroups/")[2] not in groups:
            yield Finding(
                urn=each.urn, message=f"scope {show(scope)} is not the stack's resource group"
            )


def _warns_at_each_threshold(budget: Resource) -> Iterable[str]:
    found = {
        int(each.get("threshold", 0)) for each in _notifications(budget) if each.get("enabled")
    }
    missing = [str(each) for each in THRESHOLDS if each not in found]
    if missing:
        yield f"no enabled notification at {', '.join(missing)} %"


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


def _protection_rule(name: str, types: tuple[str, ...], says: str) -> ResourceRule:
    def check(resource: Resource) -> Iterable[str]:
        if not resource.protect:
            yield "protect is off: `pulumi destroy` or a replacement would delete it"

    return ResourceRule(
        name=name,
        row="G7",
        says=says,
        sources="own; Pulumi's option protect",
        types=types,
        check=check,
        stages=("prod",),
    )


def _is_tagged(resource: Resource) -> Iterable[str]:
    tags = cast("Mapping[str, Any]", look_up(resource.inputs, "tags") or {})
    missing = [tag for tag in TAGS if not tags.get(tag)]
    if missing:
        yield f"tags are missing: {', '.join(missing)}"


def _says_its_stack(resource: Resource) -> Iterable[str]:
    wanted = {"stack": resource.stack, "stage": resource.stack.partition("-")[0]}
    for tag, value in wanted.items():
        found = look_up(resource.inputs, f"tags.{tag}")
        if found and found != value:
            yield f"tag {tag} is {show(found)}, but this is {value!r}"


def _everything_else_is_protected(stack: Stack) -> Iterable[Finding]:
    for each in stack.resources:
        is_meant = each.type.startswith(AZURE) and each.type not in {*_PROTECTED, COMPUTE}
        if is_meant and not each.protect:
            yield Finding(
                urn=each.urn,
                message="protect is off: a destroy would begin to take the stack apart",
            )


_PROTECTED = (
    GROUP,
    storage.ACCOUNT,
    storage.CONTAINER,
    key_vault.VAULT,
    registry.REGISTRY,
    WORKSPACE,
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
    _budget(
        "budget-monthly", "G5", "timeGrain", equal("Monthly"), sources="AVM consumption/budget"
    ),
    _budget(
        "budget-counts-cost", "G5", "category", equal("Cost"), sources="AVM consumption/budget"
    ),
    _budget("budget-amount", "G5", "amount", at_least(1), sources="AVM consumption/budget"),
    ResourceRule(
        name="budget-thresholds",
        row="G5",
        says="The budget warns at 50, 75, 90, 100 and 110 %",
        sources="AVM consumption/budget",
        types=(BUDGET,),
        check=_warns_at_each_threshold,
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
    _protection_rule(
        "protect-group", (GROUP,), "The resource group is protected: its deletion takes all along"
    ),
    _protection_rule("protect-storage", (storage.ACCOUNT,), "Storage accounts are protected"),
    _protection_rule("protect-containers", (storage.CONTAINER,), "Containers are protected"),
    _protection_rule("protect-vault", (key_vault.VAULT,), "The vault is protected"),
    _protection_rule("protect-registry", (registry.REGISTRY,), "The registry is protected"),
    _protection_rule("protect-workspace", (WORKSPACE,), "The workspace is protected"),
    StackRule(
        name="protect-the-rest",
        row="G7",
        says="All but the clusters is protected",
        sources="own; Pulumi's option protect",
        check=_everything_else_is_protected,
        stages=("prod",),
    ),
    ResourceRule(
        name="tags-present",
        row="C9",
        says="What takes tags has the tags project, stack, stage and owner",
        sources="Azure.Resource.UseTags",
        types=TAGGED,
        check=_is_tagged,
    ),
    ResourceRule(
        name="tags-right",
        row="C9",
        says="The tags stack and stage are those of the stack",
        sources="own",
        types=TAGGED,
        check=_says_its_stack,
    ),
)
