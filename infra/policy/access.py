"""Holds rules G1 to G3: roles, their principals and scopes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from infra.policy.conditions import one_of
from infra.policy.machine_learning import COMPUTE, WORKSPACE
from infra.policy.rules import (
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

GROUP = "azure-native:resources:ResourceGroup"
ASSIGNMENT = "azure-native:authorization:RoleAssignment"
DATA_CONTAINER = "data"

# learn.microsoft.com/azure/role-based-access-control/built-in-roles
OWNER = "8e3af657-a8ff-443c-a75c-2fe8c4bcb635"
USER_ACCESS_ADMINISTRATOR = "18d7d88d-d35e-4fb5-a5c3-7773c20a72d9"
RBAC_ADMINISTRATOR = "f58310d9-a9f6-439a-9e8d-f62e7b41a168"
CONTRIBUTOR = "b24988ac-6180-42a0-ab88-20f7382dd24c"
READER = "acdd72a7-3385-48ef-bd42-f606fba81ae7"
BLOB_OWNER = "b7e6dc6d-f1e8-4753-8033-0f276bb0955b"
BLOB_CONTRIBUTOR = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"
BLOB_READER = "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1"
FILE_CONTRIBUTOR = "69566ab7-960f-475b-8e7c-b3118f30c6bd"
FILE_READER = "b8eda974-7b85-4f76-af95-65846b26df6d"
VAULT_ADMINISTRATOR = "00482a5a-887f-4fb3-b363-3b7fe8e74483"
VAULT_SECRETS_USER = "4633458b-17de-408a-b874-0445c86b69e6"
REGISTRY_PULL = "7f951dda-4ed3-4680-a7ca-43fe172d538d"
REGISTRY_PUSH = "8311e382-0749-4cb8-b61a-304f252e45ec"
DATA_SCIENTIST = "f6c7c914-8db3-469d-8ca1-694a8f32e121"
COMPUTE_OPERATOR = "e503ece1-11d0-4e8e-8e2c-7a6c3bf38815"
ENDPOINT_APPROVER = "b556d68e-0be0-4f35-a333-ad7ee1ce17ea"

GIVES_RIGHTS_AWAY = {
    OWNER: "Owner",
    USER_ACCESS_ADMINISTRATOR: "User Access Administrator",
    RBAC_ADMINISTRATOR: "Role Based Access Control Administrator",
    BLOB_OWNER: "Storage Blob Data Owner",
}
# Role -> kinds of scope, for each kind of principal. What clusters may is ours; what the
# workspace may: Azure ML's own table (how-to-identity-based-service-authentication).
_OF_CLUSTERS: Mapping[str, frozenset[str]] = {
    BLOB_CONTRIBUTOR: frozenset({"workspace account", "container"}),
    BLOB_READER: frozenset({"container"}),
    VAULT_SECRETS_USER: frozenset({"secret"}),
    REGISTRY_PULL: frozenset({"registry"}),
}
_OF_WORKSPACE: Mapping[str, frozenset[str]] = {
    CONTRIBUTOR: frozenset({"workspace", "workspace account", "vault", "registry", "insights"}),
    BLOB_CONTRIBUTOR: frozenset({"workspace account"}),
    VAULT_ADMINISTRATOR: frozenset({"vault"}),
    ENDPOINT_APPROVER: frozenset(
        {"workspace account", "data account", "vault", "registry", "workspace"}
    ),
    READER: frozenset({"private endpoint"}),
}
_OF_PEOPLE: Mapping[str, frozenset[str]] = {
    READER: frozenset({"workspace"}),
    DATA_SCIENTIST: frozenset({"workspace"}),
    COMPUTE_OPERATOR: frozenset({"workspace"}),
    BLOB_CONTRIBUTOR: frozenset({"workspace account", "container"}),
    BLOB_READER: frozenset({"workspace account", "container"}),
    FILE_CONTRIBUTOR: frozenset({"workspace account"}),
    FILE_READER: frozenset({"workspace account"}),
    REGISTRY_PUSH: frozenset({"registry"}),
}
_PARTS = {
    "microsoft.containerregistry/registries": "registry",
    "microsoft.insights/components": "insights",
    "microsoft.keyvault/vaults": "vault",
    "microsoft.machinelearningservices/workspaces": "workspace",
    "microsoft.network/privateendpoints": "private endpoint",
}


def role_of(assignment: Resource) -> str:
    """Read the GUID of the role that is given."""
    return str(assignment.inputs.get("roleDefinitionId")).lower().rpartition("/")[2]


def kind_of(scope: object, stack: Stack) -> str:
    """Classify a scope by its id: a kind of the tables above, or `other`."""
    text = str(scope).lower()
    if re.fullmatch(r"/subscriptions/[^/]+/resourcegroups/[^/]+", text):
        return "group"
    provider, _, rest = text.rpartition("/resourcegroups/")[2].partition("/")[2].partition("/")
    words = rest.split("/") if provider == "providers" else []
    kind, inner = "/".join(words[:2]), words[3:]
    if kind == "microsoft.storage/storageaccounts":
        if "containers" in inner:
            return "container"
        account = stack.by_id(text)
        return "other" if inner or account is None else kind_of_account(account, stack)
    if kind == "microsoft.keyvault/vaults" and inner[:1] == ["secrets"]:
        return "secret"
    return "other" if inner else _PARTS.get(kind, "other")


def kind_of_account(account: Resource, stack: Stack) -> str:
    """Tell the workspace's own storage account from that of the data."""
    own = [stack.by_id(each.inputs.get("storageAccount")) for each in stack.of(WORKSPACE)]
    return "workspace account" if account in own else "data account"


def _given_to(principal: str, stack: Stack) -> Iterator[Resource]:
    """Find the assignments to clusters, the workspace, people, or to nobody of this stack."""
    actors = _find_actors(stack)
    for each in stack.of(ASSIGNMENT):
        if each.inputs.get("principalType") == "Group":
            found = "people"
        else:
            # The principal's id is not known at preview; whose it is, is.
            urns = each.made_from.get("principalId", ())
            found = next((actors[urn] for urn in urns if urn in actors), "nobody of this stack")
        if found == principal:
            yield each


def _find_actors(stack: Stack) -> Mapping[str, str]:
    """Map each identity's urn to the resources that act as it."""
    found: dict[str, str] = {}
    for each in stack.of(WORKSPACE):
        identity = stack.by_id(each.inputs.get("primaryUserAssignedIdentity"))
        if identity is not None:
            found[identity.urn] = "the workspace"
    # Later: an identity that both act as is held to the clusters' table, the narrower one.
    for each in stack.of(COMPUTE):
        for used in look_up(each.inputs, "identity.userAssignedIdentities") or ():
            identity = stack.by_id(used)
            if identity is not None:
                found[identity.urn] = "clusters"
    return found


def _role_rule(
    name: str, row: str, principal: str, table: Mapping[str, frozenset[str]], sources: str
) -> StackRule:
    def check(stack: Stack) -> Iterable[Finding]:
        for each in _given_to(principal, stack):
            if role_of(each) not in table:
                yield Finding(
                    urn=each.urn,
                    message=f"{principal}: role {role_of(each)} is none of the listed ones",
                )

    return StackRule(
        name=name,
        row=row,
        says=f"Roles given to {principal} are those that are listed for them",
        sources=sources,
        check=check,
    )


def _scope_rule(
    name: str, row: str, principal: str, table: Mapping[str, frozenset[str]], sources: str
) -> StackRule:
    def check(stack: Stack) -> Iterable[Finding]:
        for each in _given_to(principal, stack):
            kinds = table.get(role_of(each))
            kind = kind_of(each.inputs.get("scope"), stack)
            if kinds is not None and kind not in kinds:
                yield Finding(
                    urn=each.urn,
                    message=f"{principal}: this role on the scope {kind!r}, "
                    f"not on {' or '.join(sorted(kinds))}",
                )

    return StackRule(
        name=name,
        row=row,
        says=f"Each role given to {principal} has the narrowest scope that serves",
        sources=sources,
        check=check,
    )


def _only_own_identities(stack: Stack) -> Iterable[Finding]:
    for each in _given_to("nobody of this stack", stack):
        yield Finding(
            urn=each.urn,
            message="the principal is neither a group of people nor the identity of this stack's "
            "workspace or clusters",
        )


def _data_read_only(stack: Stack) -> Iterable[Finding]:
    for each in _given_to("clusters", stack):
        scope = str(each.inputs.get("scope")).lower()
        if role_of(each) != BLOB_READER and scope.endswith(f"/containers/{DATA_CONTAINER}"):
            yield Finding(urn=each.urn, message="clusters may read the data container, no more")


def _gives_no_rights_away(assignment: Resource) -> Iterable[str]:
    role = GIVES_RIGHTS_AWAY.get(role_of(assignment))
    if role is not None:
        yield f"roleDefinitionId is {role}, whose holder hands out rights"


def _within_group(stack: Stack) -> Iterable[Finding]:
    groups = {str(each.inputs.get("resourceGroupName")).lower() for each in stack.of(GROUP)}
    for each in stack.of(ASSIGNMENT):
        scope = each.inputs.get("scope")
        inside = str(scope).lower().partition("/resourcegroups/")[2]
        if inside.partition("/")[0] not in groups:
            yield Finding(
                urn=each.urn, message=f"scope {show(scope)} is not in the stack's resource group"
            )


_DOCUMENTED = "Azure ML: how-to-identity-based-service-authentication"

RULES: tuple[Rule, ...] = (
    ResourceRule(
        name="access-no-rights-to-give",
        row="G1",
        says="No role assignment gives the right to hand out rights",
        sources="CKV_AZURE_39, MCSB PA-7",
        types=(ASSIGNMENT,),
        check=_gives_no_rights_away,
    ),
    StackRule(
        name="access-within-group",
        row="G1",
        says="No role assignment reaches beyond the stack's resource group",
        sources="MCSB PA-7",
        check=_within_group,
    ),
    property_rule(
        ASSIGNMENT,
        "access-receiver-type",
        "G1",
        "principalType",
        one_of("ServicePrincipal", "Group"),
        sources="own",
        why="single people go into groups; without it a new identity may not be found yet",
    ),
    StackRule(
        name="access-own-identities",
        row="G1",
        says="Identities that get roles are those of the stack's workspace and clusters",
        sources="own",
        check=_only_own_identities,
    ),
    _role_rule(
        "access-cluster-roles",
        "G1",
        "clusters",
        _OF_CLUSTERS,
        f"{_DOCUMENTED}, CKV_AZURE_39",
    ),
    _scope_rule("access-cluster-scopes", "G1", "clusters", _OF_CLUSTERS, _DOCUMENTED),
    StackRule(
        name="access-cluster-reads-data",
        row="G1",
        says="Clusters cannot write to the data container",
        sources=_DOCUMENTED,
        check=_data_read_only,
    ),
    _role_rule("access-workspace-roles", "G2", "the workspace", _OF_WORKSPACE, _DOCUMENTED),
    _scope_rule("access-workspace-scopes", "G2", "the workspace", _OF_WORKSPACE, _DOCUMENTED),
    _role_rule(
        "access-people-roles",
        "G3",
        "people",
        _OF_PEOPLE,
        "Azure ML: how-to-disable-local-auth-storage",
    ),
    _scope_rule(
        "access-people-scopes",
        "G3",
        "people",
        _OF_PEOPLE,
        "Azure ML: how-to-disable-local-auth-storage",
    ),
)
