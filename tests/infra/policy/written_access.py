"""Mutants of the rules on roles: who gets too much, and where."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from infra.policy import access
from infra.policy.machine_learning import COMPUTE
from infra.policy.rules import Resource, Stack
from tests.infra.policy.mutants import GROUP_ID, Make, Mutant, Where, add, drop, edit
from tests.infra.policy.wrong_values import FOREIGN

ROLES = "/subscriptions/11111111-1111-4111-8111-111111111111/providers/Microsoft.Authorization"
ACCOUNT = "/providers/Microsoft.Storage/storageAccounts"
# A role that no table has: Virtual Machine Contributor.
MACHINES = "9980e02c-c2be-4d73-94e8-173b1dc7cf3c"


def assigned(principal: str) -> Where:
    """Assignments to the workspace's identity, or to those of clusters."""

    def where(each: Resource) -> bool:
        urns = each.made_from.get("principalId", ())
        is_workspace = any(urn.endswith("-workspace") for urn in urns)
        return bool(urns) and is_workspace == (principal == "workspace")

    return where


def workspace_not_approving(each: Resource) -> bool:
    """Assignments to the workspace's identity but the one that may lie on the whole group."""
    return assigned("workspace")(each) and access.role_of(each) != access.ENDPOINT_APPROVER


def given(role: str, below: str = "") -> Make:
    """A role more for a group of people, on what lies below the stack's group."""
    return add(
        access.ASSIGNMENT,
        "people",
        {
            "principalId": FOREIGN,
            "principalType": "Group",
            "roleDefinitionId": _role(role),
            "scope": in_group(below),
        },
    )


def in_group(below: str = "") -> Callable[[Stack | Resource], str]:
    """A scope in the resource group of a stack, or of an assignment's own scope."""

    def scope(of: Stack | Resource) -> str:
        one = of if isinstance(of, Resource) else of.of(access.ASSIGNMENT)[0]
        return str(one.inputs["scope"]).partition("/providers/")[0] + below

    return scope


def shared(make: Make) -> Make:
    """Mutants of a stack whose clusters all act as the identity of `cpu`."""

    def made(whole: Stack) -> Iterator[Mutant]:
        cpu = next(each for each in whole.of(COMPUTE) if each.name == "cluster-cpu-compute")
        identity = cpu.inputs["identity"]
        resources = tuple(
            replace(each, inputs={**each.inputs, "identity": identity})
            if each.type == COMPUTE
            else each
            for each in whole.resources
        )
        yield from make(replace(whole, resources=resources))

    return made


def _is_of_cpu(each: Resource) -> bool:
    return any(urn.endswith("-cpu") for urn in each.made_from.get("principalId", ()))


def _is_limited(each: Resource) -> bool:
    return "condition" in each.inputs


def _ends(each: Resource, text: str) -> bool:
    return str(each.inputs["scope"]).endswith(text)


def _role(guid: str) -> str:
    return f"{ROLES}/roleDefinitions/{guid}"


WRITTEN: Mapping[str, tuple[Make, ...]] = {
    "access-no-rights-to-give": (
        edit(access.ASSIGNMENT, "roleDefinitionId", _role(access.OWNER)),
        edit(access.ASSIGNMENT, "roleDefinitionId", _role(access.USER_ACCESS_ADMINISTRATOR)),
    ),
    "access-within-group": (
        edit(
            access.ASSIGNMENT,
            "scope",
            lambda each: str(each.inputs["scope"]).replace("/resourceGroups/", "/resourceGroups/x"),
        ),
        edit(access.ASSIGNMENT, "scope", GROUP_ID.partition("/resourceGroups")[0]),
        drop(access.ASSIGNMENT, "scope"),
    ),
    "access-own-identities": (
        add(
            access.ASSIGNMENT,
            "stranger",
            {
                "principalId": FOREIGN,
                "principalType": "ServicePrincipal",
                "roleDefinitionId": _role(access.BLOB_READER),
                "scope": in_group(f"{ACCOUNT}/x"),
            },
        ),
        add(
            access.ASSIGNMENT,
            "nobody",
            {
                "principalType": "ServicePrincipal",
                "roleDefinitionId": _role(access.BLOB_READER),
                "scope": in_group(f"{ACCOUNT}/x"),
            },
        ),
    ),
    "access-cluster-roles": (
        edit(
            access.ASSIGNMENT,
            "roleDefinitionId",
            _role(access.CONTRIBUTOR),
            where=assigned("cluster"),
        ),
        drop(access.ASSIGNMENT, "roleDefinitionId", where=assigned("cluster")),
    ),
    "access-cluster-pulls-images": (
        edit(
            access.ASSIGNMENT,
            "roleDefinitionId",
            _role(access.REGISTRY_PUSH),
            where=lambda each: access.role_of(each) == access.REGISTRY_PULL,
        ),
    ),
    "access-cluster-scopes": (
        edit(access.ASSIGNMENT, "scope", in_group(), where=assigned("cluster")),
        edit(
            access.ASSIGNMENT,
            "scope",
            in_group(f"{ACCOUNT}/x/blobServices/default"),
            where=assigned("cluster"),
        ),
    ),
    "access-cluster-reads-data": (
        shared(
            edit(
                access.ASSIGNMENT,
                "roleDefinitionId",
                _role(access.BLOB_CONTRIBUTOR),
                where=lambda each: _is_of_cpu(each) and _ends(each, "/containers/data"),
            )
        ),
        shared(
            edit(
                access.ASSIGNMENT,
                "scope",
                in_group(f"{ACCOUNT}/x/blobServices/default/containers/data"),
                where=lambda each: _is_of_cpu(each) and _ends(each, "/containers/runs"),
            )
        ),
    ),
    "access-cluster-writes-logs": (
        drop(access.ASSIGNMENT, "condition", where=_is_limited),
        drop(access.ASSIGNMENT, "conditionVersion", where=_is_limited),
        edit(
            access.ASSIGNMENT,
            "condition",
            lambda each: str(each.inputs["condition"]).replace("'azureml*'", "'*'"),
            where=_is_limited,
        ),
        edit(
            access.ASSIGNMENT,
            "condition",
            lambda each: str(each.inputs["condition"]).replace("blobs/delete", "blobs/read"),
            where=_is_limited,
        ),
    ),
    "access-workspace-roles": (
        edit(access.ASSIGNMENT, "roleDefinitionId", _role(MACHINES), where=assigned("workspace")),
        drop(access.ASSIGNMENT, "roleDefinitionId", where=assigned("workspace")),
    ),
    "access-workspace-scopes": (
        edit(access.ASSIGNMENT, "scope", in_group(), where=workspace_not_approving),
        edit(
            access.ASSIGNMENT,
            "scope",
            in_group("/providers/Microsoft.Network/virtualNetworks/x"),
            where=assigned("workspace"),
        ),
    ),
    "access-people-roles": (
        given(MACHINES, "/providers/Microsoft.MachineLearningServices/workspaces/x"),
        given(access.CONTRIBUTOR),
    ),
    "access-people-scopes": (
        given(access.BLOB_CONTRIBUTOR),
        given(access.DATA_SCIENTIST),
        given(access.COMPUTE_OPERATOR),
    ),
}
