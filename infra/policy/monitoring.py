"""Holds rules I2, I3 and G9: the audit's logs, alerts, and Azure's own policies on the group."""

from __future__ import annotations

from collections.abc import Iterable

from infra.policy.network import PRIVATE
from infra.policy.rules import GROUP, Finding, Resource, Rule, Stack, StackRule, look_up, show

DIAGNOSTICS = "azure-native:monitor:DiagnosticSetting"
LOG_ANALYTICS = "azure-native:operationalinsights:Workspace"
ACTION_GROUP = "azure-native:monitor:ActionGroup"
METRIC_ALERT = "azure-native:monitor:MetricAlert"
POLICY_ASSIGNMENT = "azure-native:authorization:PolicyAssignment"
# What runs write by the million; every other category is the audit's.
FLOODS = frozenset({"StorageRead", "StorageWrite"})
UNLIMITED_GB = -1
ALERTS = ("Idle Nodes", "Unusable Nodes", "Quota Utilization Percentage")
# Built-in policies that keep others from opening the group: no SSH, public blobs, keys or networks.
DENIED = frozenset(
    {
        "e96a9a5f-07ca-471b-9bc5-6a0f33cbd68f",
        "4fa4b6c0-31ca-4c0d-b10d-24b96f62a751",
        "8c6a50c6-9ffd-4ae7-986f-5fa6111f9a54",
        "b2982f36-99f2-4db5-8eff-283140c09693",
        "438c38d2-3772-465a-a9cc-7a6666a275ce",
        "405c5871-3e91-4644-8a63-58e19d68ff5b",
        "0fdf0491-d080-4575-b627-ad0e843cba0f",
    }
)


def _audit_apart(stack: Stack) -> Iterable[Finding]:
    settings = stack.of(DIAGNOSTICS)
    flooded = {
        workspace.urn
        for each in settings
        if FLOODS & _categories(each) and (workspace := _workspace(stack, each))
    }
    for each in settings:
        audit, workspace = _categories(each) - FLOODS, _workspace(stack, each)
        if not audit or workspace is None:
            continue
        told = ", ".join(sorted(audit))
        quota = look_up(workspace.inputs, "workspaceCapping.dailyQuotaGb")
        if quota != UNLIMITED_GB:
            message = f"{told} goes to {workspace.name}, whose daily limit is {show(quota)} GB"
            yield Finding(urn=each.urn, message=message)
        elif workspace.urn in flooded:
            message = f"{told} goes to {workspace.name}, which reads and writes of data fill"
            yield Finding(urn=each.urn, message=message)


def _categories(setting: Resource) -> set[str]:
    return {str(look_up(log, "category")) for log in look_up(setting.inputs, "logs") or ()}


def _workspace(stack: Stack, setting: Resource) -> Resource | None:
    """Find the stack's own workspace that a setting sends to; None for another's."""
    return stack.by_id(setting.inputs.get("workspaceId"))


def _alerts_are_mailed(stack: Stack) -> Iterable[Finding]:
    mailed: set[str] = set()
    for each in stack.of(METRIC_ALERT):
        groups = [
            stack.by_id(look_up(action, "actionGroupId"))
            for action in look_up(each.inputs, "actions") or ()
        ]
        if each.inputs.get("enabled") is True and any(map(_has_receiver, groups)):
            for criterion in look_up(each.inputs, "criteria.allOf") or ():
                mailed.add(str(look_up(criterion, "metricName")))
    for missing in (each for each in ALERTS if each not in mailed):
        yield Finding(message=f"nobody is mailed about: {missing}")


def _has_receiver(group: Resource | None) -> bool:
    return (
        group is not None
        and group.type == ACTION_GROUP
        and group.inputs.get("enabled") is True
        and bool(group.inputs.get("emailReceivers"))
    )


def _others_are_denied(stack: Stack) -> Iterable[Finding]:
    groups = {str(each.inputs.get("resourceGroupName")).lower() for each in stack.of(GROUP)}
    if not groups or stack.groups - groups:  # another's group is not ours to close
        return
    denied = {
        str(each.inputs.get("policyDefinitionId")).rpartition("/")[2]
        for each in stack.of(POLICY_ASSIGNMENT)
        if str(each.inputs.get("scope")).lower().rpartition("/resourcegroups/")[2] in groups
        and look_up(each.inputs, "parameters.effect.value") == "Deny"
        and each.inputs.get("enforcementMode") == "Default"
    }
    for missing in sorted(DENIED - denied):
        yield Finding(message=f"the policy {missing} does not deny in the stack's group")


RULES: tuple[Rule, ...] = (
    StackRule(
        name="logs-audit-apart",
        row="I2",
        says="All logs but reads and writes of data go to a Log Analytics workspace without a daily "
        "limit, which gets no reads and writes",
        sources="own",
        check=_audit_apart,
        stages=PRIVATE,
    ),
    StackRule(
        name="alerts-mailed",
        row="I3",
        says="Idle nodes, unusable nodes and used quota are mailed to somebody",
        sources="own (cost)",
        check=_alerts_are_mailed,
    ),
    StackRule(
        name="policy-denies-others",
        row="G9",
        says="Azure Policy denies SSH, public blobs, keys and public networks in the group to "
        "whoever writes into it",
        sources="e96a9a5f, 4fa4b6c0, 8c6a50c6, b2982f36, 438c38d2, 405c5871, 0fdf0491",
        check=_others_are_denied,
        stages=PRIVATE,
    ),
)
