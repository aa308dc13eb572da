"""Holds rules G1 to G3: roles, their principals and scopes."""

from __future__ import annotations

import re
from collections import Counter
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
from infra.roles import Role

ASSIGNMENT = "azure-native:authorization:RoleAssignment"
DATA_CONTAINER = "data"

# learn.microsoft.com/azure/role-based-access-control/built-in-roles
OWNER = "8e3af657-a8ff-443c-a75c-2fe8c4bcb635"
USER_ACCESS_ADMINISTRATOR = "18d7d88d-d35e-4fb5-a5c3-7773c20a72d9"
RBAC_ADMINISTRATOR = "f58310d9-a9f6-439a-9e8d-f62e7b41a168"
CONTRIBUTOR = Role.CONTRIBUTOR
READER = Role.READER
BLOB_OWNER = "b7e6dc6d-f1e8-4753-8033-0f276bb0955b"
BLOB_CONTRIBUTOR = Role.BLOB_DATA_CONTRIBUTOR
BLOB_READER = Role.BLOB_DATA_READER
FILE_CONTRIBUTOR = Role.FILE_DATA_PRIVILEGED_CONTRIBUTOR
FILE_READER = Role.FILE_DATA_PRIVILEGED_READER
VAULT_ADMINISTRATOR = Role.KEY_VAULT_ADMINISTRATOR
VAULT_SECRETS_USER = Role.KEY_VAULT_SECRETS_USER
REGISTRY_PULL = Role.ACR_PULL
REGISTRY_PUSH = Role.ACR_PUSH
DATA_SCIENTIST = Role.ML_DATA_SCIENTIST
COMPUTE_OPERATOR = Role.ML_COMPUTE_OPERATOR
ENDPOINT_APPROVER = Role.NETWORK_CONNECTION_APPROVER

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
    REGISTRY_PUSH: frozenset({"registry"}),  # in dev alone, whose images are built on a cluster
}
_OF_WORKSPACE: Mapping[str, frozenset[str]] = {
    CONTRIBUTOR: frozenset({"workspace", "workspace account", "vault", "registry", "insights"}),
    BLOB_CONTRIBUTOR: frozenset({"workspace account"}),
    VAULT_ADMINISTRATOR: frozenset({"vault"}),
    ENDPOINT_APPROVER: frozenset(
        {"group", "workspace account", "data account", "vault", "registry", "workspace"}
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
# Conditions on a role: learn.microsoft.com, role-based-access-control/conditions-format
_CONTAINER = "Microsoft.Storage/storageAccounts/blobServices/containers:name"
_WRITING = ("write", "add/action", "delete")
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


def rights_of_clusters(stack: Stack) -> set[str]:
    """Find the urns of the clusters' identities and of their roles: they come and go with them."""
    identities = {urn for urn, actor in _find_actors(stack).items() if actor == "clusters"}
    return identities | {each.urn for each in _given_to("clusters", stack)}


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
    shared = _shared_identities(stack)
    for each in _given_to("clusters", stack):
        scope = str(each.inputs.get("scope")).lower()
        if role_of(each) == BLOB_READER or not scope.endswith(f"/containers/{DATA_CONTAINER}"):
            continue
        if shared.intersection(each.made_from.get("principalId", ())):
            message = "clusters that share an identity may read the data container, no more"
            yield Finding(urn=each.urn, message=message)


def _shared_identities(stack: Stack) -> set[str]:
    """Find the urns of the identities that several clusters act as."""
    used = Counter(
        identity.urn
        for each in stack.of(COMPUTE)
        for one in look_up(each.inputs, "identity.userAssignedIdentities") or ()
        if (identity := stack.by_id(one))
    )
    return {urn for urn, times in used.items() if times > 1}


def _writes_azure_mls_alone(stack: Stack) -> Iterable[Finding]:
    for each in _given_to("clusters", stack):
        if role_of(each) != BLOB_CONTRIBUTOR:
            continue
        if kind_of(each.inputs.get("scope"), stack) != "workspace account":
            continue
        condition = str(each.inputs.get("condition"))
        holds = all(f"blobs/{action}'}}" in condition for action in _WRITING)
        ends = condition.endswith("OR (@Resource[" + _CONTAINER + "] StringLike 'azureml*'))")
        if not (holds and ends and each.inputs.get("conditionVersion") == "2.0"):
            message = "no condition keeps its writes to the containers azureml*"
            yield Finding(urn=each.urn, message=message)


def _pushes_no_image(stack: Stack) -> Iterable[Finding]:
    for each in _given_to("clusters", stack):
        if role_of(each) == REGISTRY_PUSH:
            yield Finding(urn=each.urn, message="clusters may pull images, no more")


def _gives_no_rights_away(assignment: Resource) -> Iterable[str]:
    role = GIVES_RIGHTS_AWAY.get(role_of(assignment))
    if role is not None:
        yield f"roleDefinitionId is {role}, whose holder hands out rights"


def _within_group(stack: Stack) -> Iterable[Finding]:
    for each in stack.of(ASSIGNMENT):
        scope = each.inputs.get("scope")
        inside = str(scope).lower().partition("/resourcegroups/")[2]
        is_named = any(f"{scope}/".lower().startswith(f"{one}/") for one in stack.existing)
        if inside.partition("/")[0] not in stack.groups and not is_named:
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
        says="Clusters that share an identity cannot write to the data container",
        sources=_DOCUMENTED,
        check=_data_read_only,
    ),
    StackRule(
        name="access-cluster-writes-logs",
        row="G1",
        says="Clusters write to containers azureml* of the workspace's account and to no others, "
        "where code lies",
        sources="own",
        check=_writes_azure_mls_alone,
    ),
    StackRule(
        name="access-cluster-pulls-images",
        row="G1",
        says="Clusters cannot push images",
        sources=_DOCUMENTED,
        stages=("test", "prod"),
        check=_pushes_no_image,
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
