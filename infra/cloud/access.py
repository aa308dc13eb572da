"""Grants the least roles to identities and people, each on the smallest scope."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

import pulumi
from pulumi_azure_native import authorization

from infra.cloud.context import Context
from infra.cloud.identity import Identities
from infra.cloud.resource_options import replaced_with


class Role(StrEnum):
    """Azure's built-in roles.

    https://learn.microsoft.com/azure/role-based-access-control/built-in-roles
    """

    CONTRIBUTOR = "b24988ac-6180-42a0-ab88-20f7382dd24c"
    READER = "acdd72a7-3385-48ef-bd42-f606fba81ae7"
    BLOB_DATA_CONTRIBUTOR = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"
    BLOB_DATA_READER = "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1"
    FILE_DATA_PRIVILEGED_CONTRIBUTOR = "69566ab7-960f-475b-8e7c-b3118f30c6bd"
    FILE_DATA_PRIVILEGED_READER = "b8eda974-7b85-4f76-af95-65846b26df6d"
    KEY_VAULT_ADMINISTRATOR = "00482a5a-887f-4fb3-b363-3b7fe8e74483"
    KEY_VAULT_SECRETS_USER = "4633458b-17de-408a-b874-0445c86b69e6"
    ACR_PULL = "7f951dda-4ed3-4680-a7ca-43fe172d538d"
    ACR_PUSH = "8311e382-0749-4cb8-b61a-304f252e45ec"
    ML_DATA_SCIENTIST = "f6c7c914-8db3-469d-8ca1-694a8f32e121"
    ML_COMPUTE_OPERATOR = "e503ece1-11d0-4e8e-8e2c-7a6c3bf38815"
    NETWORK_CONNECTION_APPROVER = "b556d68e-0be0-4f35-a333-ad7ee1ce17ea"


@dataclass(frozen=True, kw_only=True)
class Scope:
    """An object that a role is given on; its id is plain text, so that a preview shows it."""

    id: str
    resource: pulumi.Resource


@dataclass(frozen=True, kw_only=True)
class Scopes:
    """Every scope of a role but the workspace, which needs some of them to be made."""

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
    """An identity or group that gets a role; `key` names it in a plan, before its id is known."""

    key: str
    principal_id: pulumi.Input[str]
    principal_type: authorization.PrincipalType


@dataclass(frozen=True, kw_only=True)
class AccessArgs:
    """Identities that get roles, and the scopes."""

    context: Context
    identities: Identities
    scopes: Scopes


class Access(pulumi.ComponentResource):
    """Roles that must be there before the workspace, and those of the clusters."""

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
                # For the managed network's private endpoint: it may approve, and read no data.
                ("approval", Role.NETWORK_CONNECTION_APPROVER, scopes.data_account),
                # The studio looks at the endpoints before it shows what lies behind them.
                *(
                    (f"endpoint-{key}", Role.READER, endpoint)
                    for key, endpoint in scopes.workspace_endpoints.items()
                ),
            ),
            parent=self,
        )
        cluster = identity_principal("cluster", args.identities.cluster.principal_id)
        secrets: list[tuple[str, Role, Scope]] = [
            (
                f"secret-{secret}",
                Role.KEY_VAULT_SECRETS_USER,
                replace(scopes.key_vault, id=f"{scopes.key_vault.id}/secrets/{secret}"),
            )
            for secret in args.context.settings.secrets
        ]
        self.cluster = _grant_all(
            f"{name}-cluster",
            args.context,
            cluster,
            (
                ("workspace", Role.BLOB_DATA_CONTRIBUTOR, scopes.workspace_account),
                ("data", Role.BLOB_DATA_READER, scopes.data_container),
                ("runs", Role.BLOB_DATA_CONTRIBUTOR, scopes.runs_container),
                ("images", Role.ACR_PULL, scopes.registry),
                *secrets,
            ),
            parent=self,
        )
        self.register_outputs({})


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
        practitioner = (
            ("workspace", Role.ML_DATA_SCIENTIST, args.workspace),
            ("data", Role.BLOB_DATA_CONTRIBUTOR, scopes.data_container),
            ("runs", Role.BLOB_DATA_CONTRIBUTOR, scopes.runs_container),
            # With shared keys off, code, logs and notebooks are reached by these two.
            ("blobs", Role.BLOB_DATA_CONTRIBUTOR, scopes.workspace_account),
            ("files", Role.FILE_DATA_PRIVILEGED_CONTRIBUTOR, scopes.workspace_account),
            ("images", Role.ACR_PUSH, scopes.registry),
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
    return authorization.RoleAssignment(
        name,
        role_assignment_name=context.names.assignment_name(scope.id, role, principal.key),
        scope=scope.id,
        role_definition_id=context.names.role_definition_id(role),
        principal_id=principal.principal_id,
        # Said, so that Azure does not look a principal up that is not replicated yet.
        principal_type=principal.principal_type,
        # Old before new: Azure knows one assignment of a role, scope and principal.
        opts=replaced_with(parent, scope.resource),
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
