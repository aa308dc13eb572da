"""Mutants of the rules on roles: who gets too much, and where."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from infra.policy import access
from infra.policy.rules import Resource, Stack
from tests.infra.policy.mutants import GROUP_ID, Make, Where, add, drop, edit
from tests.infra.policy.wrong_values import FOREIGN

ROLES = "/subscriptions/11111111-1111-4111-8111-111111111111/providers/Microsoft.Authorization"
ACCOUNT = "/providers/Microsoft.Storage/storageAccounts"
# A role that no table has: Virtual Machine Contributor.
MACHINES = "9980e02c-c2be-4d73-94e8-173b1dc7cf3c"


def assigned(principal: str) -> Where:
    """Assignments to the identity whose name ends so."""
    return lambda each: any(
        urn.endswith(f"-{principal}") for urn in each.made_from.get("principalId", ())
    )


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
        edit(
            access.ASSIGNMENT,
            "roleDefinitionId",
            _role(access.BLOB_CONTRIBUTOR),
            where=lambda each: (
                assigned("cluster")(each) and str(each.inputs["scope"]).endswith("/containers/data")
            ),
        ),
        edit(
            access.ASSIGNMENT,
            "scope",
            in_group(f"{ACCOUNT}/x/blobServices/default/containers/data"),
            where=lambda each: (
                assigned("cluster")(each) and str(each.inputs["scope"]).endswith("/containers/runs")
            ),
        ),
    ),
    "access-workspace-roles": (
        edit(access.ASSIGNMENT, "roleDefinitionId", _role(MACHINES), where=assigned("workspace")),
        drop(access.ASSIGNMENT, "roleDefinitionId", where=assigned("workspace")),
    ),
    "access-workspace-scopes": (
        edit(access.ASSIGNMENT, "scope", in_group(), where=assigned("workspace")),
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
