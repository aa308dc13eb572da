"""Assigns Azure's own policies to the stack's group, for what is made there beside the program.

The pack in infra/policy judges what this program declares; these judge everybody who writes into the
group, by hand or by another tool. In dev they report, in test and prod they refuse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import authorization

from infra.cloud.access import Scope
from infra.cloud.context import Context
from infra.cloud.resource_options import replaced_with

_DEFINITIONS = "/providers/Microsoft.Authorization/policyDefinitions"


@dataclass(frozen=True, kw_only=True)
class _BuiltIn:
    """A definition of Azure's, its own name for it, and its parameters beside the effect."""

    definition: str
    display_name: str
    parameters: Mapping[str, str]


def _built_in(definition: str, display_name: str, **parameters: str) -> _BuiltIn:
    return _BuiltIn(definition=definition, display_name=display_name, parameters=parameters)


# https://github.com/Azure/azure-policy, built-in-policies/policyDefinitions
_ALWAYS: Mapping[str, _BuiltIn] = {
    "compute-no-ssh": _built_in(
        "e96a9a5f-07ca-471b-9bc5-6a0f33cbd68f",
        "Azure Machine Learning Computes should have local authentication methods disabled",
    ),
    "compute-instance-idle": _built_in(
        "679ddf89-ab8f-48a5-9029-e76054077449",
        "Azure Machine Learning Compute Instance should have idle shutdown.",
    ),
    "workspace-identity": _built_in(
        "5f0c7d88-c7de-45b8-ac49-db49e72eaa78",
        "Azure Machine Learning workspaces should use user-assigned managed identity",
    ),
    "storage-no-public-blobs": _built_in(
        "4fa4b6c0-31ca-4c0d-b10d-24b96f62a751",
        "Storage account public access should be disallowed",
    ),
    "storage-no-shared-key": _built_in(
        "8c6a50c6-9ffd-4ae7-986f-5fa6111f9a54",
        "Storage accounts should prevent shared key access",
    ),
    "storage-firewall": _built_in(
        "34c877ad-507e-4c82-993e-3452a6e0ad3c",
        "Storage accounts should restrict network access",
    ),
    "vault-firewall": _built_in(
        "55615ac9-af46-4a59-874e-391cc3dfb490",
        "Azure Key Vault should have firewall enabled or public network access disabled",
    ),
    "vault-roles": _built_in(
        "12d4fa5e-1f9f-4c21-97a9-b99b3c6611b5",
        "Azure Key Vault should use RBAC permission model",
    ),
    "registry-no-admin": _built_in(
        "dc921057-6b28-4fbe-9b83-f7bec05db6c2",
        "Container registries should have local admin account disabled.",
    ),
    "registry-no-anonymous": _built_in(
        "9f2dea28-e834-476c-99c5-3507b4728395",
        "Container registries should have anonymous authentication disabled.",
    ),
}
_WHERE_PRIVATE: Mapping[str, _BuiltIn] = {
    "workspace-private": _built_in(
        "438c38d2-3772-465a-a9cc-7a6666a275ce",
        "Azure Machine Learning Workspaces should disable public network access",
    ),
    "storage-private": _built_in(
        "b2982f36-99f2-4db5-8eff-283140c09693",
        "Storage accounts should disable public network access",
    ),
    "vault-private": _built_in(
        "405c5871-3e91-4644-8a63-58e19d68ff5b",
        "Azure Key Vault should disable public network access",
    ),
    "registry-private": _built_in(
        "0fdf0491-d080-4575-b627-ad0e843cba0f",
        "Public network access should be disabled for Container registries",
    ),
}
# dev's nodes reach the internet, and its vault can be purged.
_BEYOND_DEV: Mapping[str, _BuiltIn] = {
    "workspace-outbound": _built_in(
        "6ddb1705-c8cf-450e-aa4b-19ad6703c440",
        "Azure Machine Learning and Ai Studio should use Allow Only Approved Outbound Managed Vnet "
        "mode",
        isolationMode="AllowOnlyApprovedOutbound",
    ),
    "vault-no-purge": _built_in(
        "0b60c0b2-2dc2-4e1c-b5c9-abbed971de53",
        "Key vaults should have deletion protection enabled",
    ),
}


@dataclass(frozen=True, kw_only=True)
class PolicyAssignmentsArgs:
    """The stack's group, and its workspace: the last of what the policies judge."""

    context: Context
    group: Scope
    workspace: Scope


class PolicyAssignments(pulumi.ComponentResource):
    """Policies that the stack keeps itself, so that it is never refused by them."""

    def __init__(
        self, name: str, args: PolicyAssignmentsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:cloud:PolicyAssignments", name, None, opts)
        is_dev = args.context.settings.stage == "dev"
        policies = {
            **_ALWAYS,
            **(_WHERE_PRIVATE if args.context.is_private else {}),
            **({} if is_dev else _BEYOND_DEV),
        }
        for key, policy in policies.items():
            parameters = {"effect": "Audit" if is_dev else "Deny", **policy.parameters}
            authorization.PolicyAssignment(
                f"{name}-{key}",
                policy_assignment_name=f"trainyard-{key}",
                scope=args.group.id,
                policy_definition_id=f"{_DEFINITIONS}/{policy.definition}",
                display_name=policy.display_name,
                enforcement_mode=authorization.EnforcementMode.DEFAULT,
                parameters={
                    parameter: authorization.ParameterValuesValueArgs(value=value)
                    for parameter, value in parameters.items()
                },
                opts=pulumi.ResourceOptions.merge(
                    replaced_with(self, args.group.resource),
                    pulumi.ResourceOptions(depends_on=[args.workspace.resource]),
                ),
            )
        self.register_outputs({})
