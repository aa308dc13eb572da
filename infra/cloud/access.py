"""Grants the least roles to identities and people, each on the smallest scope."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pulumi
from pulumi_azure_native import authorization

from infra.cloud.context import Context
from infra.cloud.identity import Identities
from infra.cloud.image_build import build_cluster
from infra.cloud.resource_options import replaced_with
from infra.cloud.settings import CloudClusterSettings
from infra.roles import Role

# https://learn.microsoft.com/azure/role-based-access-control/conditions-format
_BLOBS = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs"
_CONTAINER = "Microsoft.Storage/storageAccounts/blobServices/containers:name"
_WRITING = ("write", "add/action", "delete")
_WRITES_AZURE_MLS = (
    "(("
    + " AND ".join(f"!(ActionMatches{{'{_BLOBS}/{action}'}})" for action in _WRITING)
    + f") OR (@Resource[{_CONTAINER}] StringLike 'azureml*'))"
)


@dataclass(frozen=True, kw_only=True)
class Scope:
    """An object that a role is given on, and the condition under which the role holds there.

    Its id is plain text, so that a preview shows it.
    """

    id: str
    resource: pulumi.Resource
    condition: str | None = None


@dataclass(frozen=True, kw_only=True)
class Scopes:
    """Every scope of a role but the workspace, which needs some of them to be made."""

    group: Scope
    data_account: Scope
    data_container: Scope
    runs_container: Scope
    workspace_account: Scope
    workspace_endpoints: Mapping[str, Scope]  # the account's, where the stack is private
    key_vault: Scope
    registry: Scope
    app_insights: Scope


@dataclass(frozen=True, kw_only=True)
class Principal:
    """An identity or group that gets a role; `key` names it in a plan, before its id is known.

    `goes_with` is the identity of clusters, which may come back as another principal.
    """

    key: str
    principal_id: pulumi.Input[str]
    principal_type: authorization.PrincipalType
    goes_with: pulumi.Resource | None = None


@dataclass(frozen=True, kw_only=True)
class AccessArgs:
    """Identities that get roles, and the scopes."""

    context: Context
    identities: Identities
    scopes: Scopes


class Access(pulumi.ComponentResource):
    """Roles that must be there before the workspace, and those of the nodes by their identity."""

    def __init__(
        self, name: str, args: AccessArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:cloud:Access", name, None, opts)
        scopes = args.scopes
        workspace = identity_principal("workspace", args.identities.workspace.principal_id)
        # https://learn.microsoft.com/azure/machine-learning/how-to-identity-based-service-authentication
        # Its role on the workspace itself comes with the workspace.
        self.workspace = _grant_all(
            f"{name}-workspace",
            args.context,
            workspace,
            (
                ("account", Role.CONTRIBUTOR, scopes.workspace_account),
                ("blobs", Role.BLOB_DATA_CONTRIBUTOR, scopes.workspace_account),
                ("vault", Role.CONTRIBUTOR, scopes.key_vault),
                ("secrets", Role.KEY_VAULT_ADMINISTRATOR, scopes.key_vault),
                ("registry", Role.CONTRIBUTOR, scopes.registry),
                ("insights", Role.CONTRIBUTOR, scopes.app_insights),
                # For the managed network's private endpoints, one of which leads to the workspace
                # that is not made yet: it may approve, and read no data. Older stacks have the
                # narrower one, which cannot go while prod is locked.
                ("approval", Role.NETWORK_CONNECTION_APPROVER, scopes.data_account),
                ("approval-group", Role.NETWORK_CONNECTION_APPROVER, scopes.group),
                # The studio looks at the endpoints before it shows what lies behind them.
                *(
                    (f"endpoint-{key}", Role.READER, endpoint)
                    for key, endpoint in scopes.workspace_endpoints.items()
                ),
            ),
            parent=self,
        )
        # Clusters of one identity have the same rights: the settings see to it.
        clusters = args.context.settings.clusters
        rights = {each.identity: each for each in clusters.values()}
        builder = build_cluster(args.context)
        builds = clusters[builder].identity if builder else None
        self.nodes = {
            identity: _grant_all(
                f"{name}-{identity}",
                args.context,
                replace(identity_principal(identity, resource.principal_id), goes_with=resource),
                _roles_of_nodes(rights[identity], scopes, builds_images=identity == builds),
                parent=self,
            )
            for identity, resource in args.identities.clusters.items()
        }
        self.register_outputs({})


def _roles_of_nodes(
    rights: CloudClusterSettings, scopes: Scopes, *, builds_images: bool
) -> list[tuple[str, Role, Scope]]:
    """List what the nodes of a cluster get: images, code and logs, and what its settings name."""
    containers = {"data": scopes.data_container, "runs": scopes.runs_container}
    own, vault = scopes.workspace_account, scopes.key_vault
    return [
        # Azure ML's own containers: it writes logs there as the nodes' identity. Code lies in
        # others, which nodes read and do not change.
        ("workspace", Role.BLOB_DATA_CONTRIBUTOR, replace(own, condition=_WRITES_AZURE_MLS)),
        *(
            (each, Role.BLOB_DATA_READER, containers[each])
            for each in rights.read
            if each not in rights.write
        ),
        *((each, Role.BLOB_DATA_CONTRIBUTOR, containers[each]) for each in rights.write),
        # A push includes a pull.
        ("images", Role.ACR_PUSH if builds_images else Role.ACR_PULL, scopes.registry),
        *(
            (
                f"secret-{each}",
                Role.KEY_VAULT_SECRETS_USER,
                replace(vault, id=f"{vault.id}/secrets/{each}"),
            )
            for each in rights.secrets or ()
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class PeopleArgs:
    """Scopes of the roles of the settings' groups."""

    context: Context
    scopes: Scopes
    workspace: Scope


class People(pulumi.ComponentResource):
    """Roles of the settings' groups: launch runs and bring data, scale clusters, or look."""

    def __init__(
        self, name: str, args: PeopleArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:cloud:People", name, None, opts)
        scopes, people = args.scopes, args.context.settings.people
        is_shared = args.context.settings.existing.registry is not None
        practitioner = (
            ("workspace", Role.ML_DATA_SCIENTIST, args.workspace),
            ("data", Role.BLOB_DATA_CONTRIBUTOR, scopes.data_container),
            ("runs", Role.BLOB_DATA_CONTRIBUTOR, scopes.runs_container),
            # With shared keys off, code, logs and notebooks are reached by these two.
            ("blobs", Role.BLOB_DATA_CONTRIBUTOR, scopes.workspace_account),
            ("files", Role.FILE_DATA_PRIVILEGED_CONTRIBUTOR, scopes.workspace_account),
            # Azure takes one assignment of a role, scope and receiver, and another stack on a
            # registry that is there may name the same group.
            *(() if is_shared else (("images", Role.ACR_PUSH, scopes.registry),)),
        )
        # Of workspaces/computes/* Data Scientist may read alone; this one may scale clusters, and
        # make and delete them, which `pulumi` then sees.
        operator = (("computes", Role.ML_COMPUTE_OPERATOR, args.workspace),)
        reader = (
            ("workspace", Role.READER, args.workspace),
            ("data", Role.BLOB_DATA_READER, scopes.data_container),
            ("runs", Role.BLOB_DATA_READER, scopes.runs_container),
            ("blobs", Role.BLOB_DATA_READER, scopes.workspace_account),
            ("files", Role.FILE_DATA_PRIVILEGED_READER, scopes.workspace_account),
        )
        for kind, groups, roles in (
            ("practitioner", people.practitioners, practitioner),
            ("operator", people.operators, operator),
            ("reader", people.readers, reader),
        ):
            for group in groups:
                principal = Principal(
                    key=f"{kind}-{group}",
                    principal_id=group,
                    principal_type=authorization.PrincipalType.GROUP,
                )
                _grant_all(f"{name}-{kind}-{group}", args.context, principal, roles, parent=self)
        self.register_outputs({})


def grant(
    name: str,
    context: Context,
    *,
    principal: Principal,
    role: Role,
    scope: Scope,
    parent: pulumi.Resource,
) -> authorization.RoleAssignment:
    """Give one role on one scope; replaced together with the scope's resource."""
    # Old before new: Azure knows one assignment of a role, scope and principal.
    opts = replaced_with(parent, scope.resource)
    assignment: pulumi.Input[str] = context.names.assignment_name(scope.id, role, principal.key)
    if principal.goes_with:
        opts = pulumi.ResourceOptions.merge(opts, _going_with(principal.goes_with, context))
        assignment = pulumi.Output.from_input(principal.principal_id).apply(
            lambda principal_id: context.names.assignment_name(scope.id, role, principal_id)
        )
    return authorization.RoleAssignment(
        name,
        role_assignment_name=assignment,
        scope=scope.id,
        role_definition_id=context.names.role_definition_id(role),
        principal_id=principal.principal_id,
        # Said, so that Azure does not look a principal up that is not replicated yet.
        principal_type=principal.principal_type,
        condition=scope.condition,
        condition_version=None if scope.condition is None else "2.0",
        opts=opts,
    )


def _going_with(identity: pulumi.Resource, context: Context) -> pulumi.ResourceOptions:
    """Have a role go with the identity of clusters that are taken out of the settings.

    In prod a lock keeps each role on what it locks. Without its principal it opens nothing, so it
    is left there; the identity that comes back is another principal, with roles of other names.
    """
    return pulumi.ResourceOptions(
        protect=False,
        deleted_with=identity if context.settings.stage == "prod" else None,
        # Older stacks name it by the identity's name. Another role has another name; where that is
        # ignored, the provider would change it in place, which Azure does not take.
        ignore_changes=["roleAssignmentName"],
        replace_on_changes=["roleDefinitionId"],
    )


def identity_principal(key: str, principal_id: pulumi.Input[str]) -> Principal:
    """Build the principal of one of the stack's own identities."""
    return Principal(
        key=key,
        principal_id=principal_id,
        principal_type=authorization.PrincipalType.SERVICE_PRINCIPAL,
    )


def _grant_all(
    name: str,
    context: Context,
    principal: Principal,
    roles: Iterable[tuple[str, Role, Scope]],
    *,
    parent: pulumi.Resource,
) -> list[authorization.RoleAssignment]:
    """Give a principal several roles, each under a key of its own."""
    return [
        grant(f"{name}-{key}", context, principal=principal, role=role, scope=scope, parent=parent)
        for key, role, scope in roles
    ]
