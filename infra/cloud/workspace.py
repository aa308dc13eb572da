"""Declares the Azure ML workspace, its datastores and its role on itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import pulumi
from pulumi_azure_native import machinelearningservices

from infra.cloud.access import Scope, Scopes, grant, identity_principal
from infra.cloud.cluster import compute_name
from infra.cloud.context import Context
from infra.cloud.creation_hooks import wait_before_creation
from infra.cloud.identity import Identities
from infra.cloud.image_build import build_cluster
from infra.cloud.interfaces import Interfaces
from infra.cloud.monitoring import WORKSPACE_CATEGORIES
from infra.cloud.resource_options import replaced_with
from infra.roles import Role


@dataclass(frozen=True, kw_only=True)
class WorkspaceArgs:
    """The workspace's identity, its parts, and what must be made before it."""

    context: Context
    identities: Identities
    scopes: Scopes
    containers: Sequence[str]  # of the data account; each is a datastore of that name
    depends_on: Sequence[pulumi.Resource]
    interfaces: Interfaces


class Workspace(pulumi.ComponentResource):
    """A workspace without keys: identities everywhere, and nodes in its managed network.

    Azure makes that network with the workspace: the first `up` takes half an hour longer.
    """

    def __init__(
        self, name: str, args: WorkspaceArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:cloud:Workspace", name, None, opts)
        context, names = args.context, args.context.names
        workspace_id = names.id_of("Microsoft.MachineLearningServices/workspaces", names.workspace)
        self.workspace = self._make(name, args)
        self.scope = Scope(id=workspace_id, resource=self.workspace)
        # A private workspace answers at a host of its own (learn.microsoft.com, how-to-custom-dns).
        self.endpoint = self.workspace.discovery_url.apply(host_of)
        self.role = grant(
            f"{name}-workspace-role",
            context,
            principal=identity_principal("workspace", args.identities.workspace.principal_id),
            role=Role.CONTRIBUTOR,
            scope=self.scope,
            parent=self,
        )
        self.datastores = {
            container: self._datastore(f"{name}-datastore-{container}", context, container)
            for container in args.containers
        }
        after = [self.workspace]
        args.interfaces.log("workspace", workspace_id, WORKSPACE_CATEGORIES, after=after)
        endpoints = args.interfaces.connect(
            workspace_id, {"workspace": "amlworkspace"}, after=after
        )
        # Nodes are closed out of a private workspace until its endpoint is there.
        self.ready = [*after, self.role, *(each.names for each in endpoints.values())]
        self.register_outputs({})

    def _make(self, name: str, args: WorkspaceArgs) -> machinelearningservices.Workspace:
        context, scopes = args.context, args.scopes
        settings, names = context.settings, context.names
        builder = build_cluster(context)
        return machinelearningservices.Workspace(
            f"{name}-workspace",
            workspace_name=names.workspace,
            resource_group_name=names.resource_group,
            location=settings.location,
            kind="Default",
            identity=machinelearningservices.ManagedServiceIdentityArgs(
                type=machinelearningservices.ManagedServiceIdentityType.USER_ASSIGNED,
                user_assigned_identities=[args.identities.workspace_id],
            ),
            primary_user_assigned_identity=args.identities.workspace_id,
            storage_account=scopes.workspace_account.id,
            key_vault=scopes.key_vault.id,
            container_registry=scopes.registry.id,
            application_insights=scopes.app_insights.id,
            system_datastores_auth_mode=machinelearningservices.SystemDatastoresAuthMode.IDENTITY,
            public_network_access=(
                machinelearningservices.PublicNetworkAccessType.DISABLED
                if context.is_private
                else machinelearningservices.PublicNetworkAccessType.ENABLED
            ),
            allow_public_access_when_behind_vnet=False,
            managed_network=_managed_network(context, scopes),
            # Clusters that are made while the network is, time out
            # (learn.microsoft.com, how-to-managed-network; pulumi-azure-native issue 3212).
            provision_network_now=True,
            image_build_compute=None if builder is None else compute_name(context, builder),
            hbi_workspace=settings.stage == "prod",
            v1_legacy_mode=False,
            tags=dict(context.tags),
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=list(args.depends_on),
                # Azure moves them when the network starts, not our setting. The rules themselves
                # are not ignored (ADR 15): Azure's own would be sent to it. The network is made
                # at creation alone: an older workspace has it from its first cluster.
                ignore_changes=[
                    "managedNetwork.status",
                    "managedNetwork.outboundRules[*].status",
                    "provisionNetworkNow",
                ],
                # Azure applies a role minutes after the assignment. A workspace that is made
                # earlier lacks its default datastores, without an error (azure-docs #111772).
                hooks=wait_before_creation(
                    f"{name}-workspace-wait",
                    settings.role_wait_s,
                    "Azure applies the new roles of its identity late",
                ),
                custom_timeouts=pulumi.CustomTimeouts(create="90m"),
            ),
        )

    def _datastore(
        self, name: str, context: Context, container: str
    ) -> machinelearningservices.Datastore:
        """Declare a container under its name in jobs, used as the cluster's identity."""
        return machinelearningservices.Datastore(
            name,
            name=container,
            resource_group_name=context.names.resource_group,
            workspace_name=context.names.workspace,
            # The service would look into an account that is closed to it.
            skip_validation=True,
            properties=machinelearningservices.AzureBlobDatastoreArgs(
                datastore_type="AzureBlob",
                account_name=context.names.data_account,
                container_name=container,
                endpoint="core.windows.net",
                protocol="https",
                credentials=machinelearningservices.NoneDatastoreCredentialsArgs(
                    credentials_type="None"
                ),
                service_data_access_auth_identity=(
                    machinelearningservices.ServiceDataAccessAuthIdentity.NONE
                ),
                tags=dict(context.tags),
            ),
            opts=replaced_with(self, self.workspace),
        )


def host_of(discovery_url: str | None) -> str:
    """Cut the address of the workspace's services out of what Azure gives for its discovery."""
    assert discovery_url, "Azure gives every workspace an address"
    return f"https://{urlsplit(discovery_url).hostname}"


def _managed_network(
    context: Context, scopes: Scopes
) -> machinelearningservices.ManagedNetworkSettingsArgs:
    """Build the private endpoints from the nodes' network to what stands behind a firewall.

    Where only approved traffic goes out, Azure adds those to the workspace's own resources by
    itself; where all goes out it adds none for a resource that is open to some addresses. No rule
    names a host: the first such rule would start a firewall that is paid by the hour.
    """
    targets = {"data-blob": (scopes.data_account.id, "blob")}
    if not context.is_private:
        targets |= {
            "workspace-blob": (scopes.workspace_account.id, "blob"),
            "workspace-file": (scopes.workspace_account.id, "file"),
            "vault": (scopes.key_vault.id, "vault"),
        }
    mode = machinelearningservices.IsolationMode
    return machinelearningservices.ManagedNetworkSettingsArgs(
        isolation_mode=(
            mode.ALLOW_INTERNET_OUTBOUND
            if context.settings.stage == "dev"
            else mode.ALLOW_ONLY_APPROVED_OUTBOUND
        ),
        outbound_rules={
            rule: machinelearningservices.PrivateEndpointOutboundRuleArgs(
                type="PrivateEndpoint",
                category=machinelearningservices.RuleCategory.USER_DEFINED,
                destination=machinelearningservices.PrivateEndpointDestinationArgs(
                    service_resource_id=target, subresource_target=group, spark_enabled=False
                ),
            )
            for rule, (target, group) in targets.items()
        },
    )
