"""Declares the user-assigned identities of the workspace and of the clusters' nodes."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_azure_native import managedidentity, resources

from infra.cloud.context import Context
from infra.cloud.resource_options import replaced_with

_TYPE = "Microsoft.ManagedIdentity/userAssignedIdentities"


@dataclass(frozen=True, kw_only=True)
class IdentitiesArgs:
    """The group that the identities are made in."""

    context: Context
    resource_group: resources.ResourceGroup


class Identities(pulumi.ComponentResource):
    """Identities without rights; `infra/cloud/access.py` gives them roles.

    One is the workspace's, and `clusters` are those of the clusters, by the name that
    `clusters.X.identity` gives: a cluster has one of its own, or shares one.
    """

    def __init__(
        self, name: str, args: IdentitiesArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:cloud:Identities", name, None, opts)
        self._names = names = args.context.names
        self.workspace = self._identity(f"{name}-workspace", args, names.workspace_identity)
        self.workspace_id = self.id_of("workspace")
        used = (cluster.identity for cluster in args.context.settings.clusters.values())
        self.clusters = {
            # It comes and goes with its clusters, in prod too.
            identity: self._identity(
                f"{name}-{identity}", args, names.identity(identity), protect=False
            )
            for identity in dict.fromkeys(used)
        }
        self.register_outputs({})

    def id_of(self, identity: str) -> str:
        """Build the id of an identity from its name in the stack."""
        return self._names.id_of(_TYPE, self._names.identity(identity))

    def _identity(
        self, name: str, args: IdentitiesArgs, resource_name: str, *, protect: bool | None = None
    ) -> managedidentity.UserAssignedIdentity:
        return managedidentity.UserAssignedIdentity(
            name,
            resource_name_=resource_name,
            resource_group_name=args.context.names.resource_group,
            location=args.context.settings.location,
            tags=dict(args.context.tags),
            opts=pulumi.ResourceOptions.merge(
                replaced_with(self, args.resource_group),
                # While an identity is updated its principal counts as unknown: a preview of a new
                # owner would say that every role is replaced, and in prod be refused for it.
                pulumi.ResourceOptions(ignore_changes=["tags"], protect=protect),
            ),
        )
