"""Mutants of the rules on roles: who gets too much, and where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infra.policy import access
from tests.infra.policy.mutants import GROUP_ID, Make, Where, add, drop, edit
from tests.infra.policy.wrong_values import FOREIGN

ROLES = "/subscriptions/11111111-1111-4111-8111-111111111111/providers/Microsoft.Authorization"
# A role that no table has: Virtual Machine Contributor.
MACHINES = "9980e02c-c2be-4d73-94e8-173b1dc7cf3c"


def assigned(receiver: str) -> Where:
    """Assignments to the identity whose name ends so."""
    return lambda each: any(
        urn.endswith(f"-{receiver}") for urn in each.made_from.get("principalId", ())
    )


def given(role: str, scope: str, **more: Any) -> Make:
    """A role more for a group of people."""
    inputs = {
        "principalId": FOREIGN,
        "principalType": "Group",
        "roleDefinitionId": f"{ROLES}/roleDefinitions/{role}",
        "scope": scope,
    }
    return add(access.ASSIGNMENT, "people", {**inputs, **more})


def _role(guid: str) -> str:
    return f"{ROLES}/roleDefinitions/{guid}"


WRITTEN: Mapping[str, tuple[Make, ...]] = {
    "access-no-rights-to-give": (
        edit(access.ASSIGNMENT, "roleDefinitionId", _role(access.OWNER)),
        edit(access.ASSIGNMENT, "roleDefinitionId", _role(access.USER_ACCESS_ADMINISTRATOR)),
    ),
    "access-within-group": (
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
                "scope": f"{GROUP_ID}/providers/Microsoft.Storage/storageAccounts/x",
            },
        ),
        add(
            access.ASSIGNMENT,
            "nobody",
            {
                "principalType": "ServicePrincipal",
                "roleDefinitionId": _role(access.BLOB_READER),
                "scope": f"{GROUP_ID}/providers/Microsoft.Storage/storageAccounts/x",
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
        edit(access.ASSIGNMENT, "scope", GROUP_ID, where=assigned("cluster")),
        edit(
            access.ASSIGNMENT,
            "scope",
            f"{GROUP_ID}/providers/Microsoft.Storage/storageAccounts/x/blobServices/default",
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
            f"{GROUP_ID}/providers/Microsoft.Storage/storageAccounts/x/blobServices/default"
            "/containers/data",
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
        edit(access.ASSIGNMENT, "scope", GROUP_ID, where=assigned("workspace")),
        edit(
            access.ASSIGNMENT,
            "scope",
            f"{GROUP_ID}/providers/Microsoft.Network/virtualNetworks/x",
            where=assigned("workspace"),
        ),
    ),
    "access-people-roles": (
        given(MACHINES, f"{GROUP_ID}/providers/Microsoft.MachineLearningServices/workspaces/x"),
        given(access.CONTRIBUTOR, GROUP_ID),
    ),
    "access-people-scopes": (
        given(access.BLOB_CONTRIBUTOR, GROUP_ID),
        given(access.DATA_SCIENTIST, GROUP_ID),
    ),
}
