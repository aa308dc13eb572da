"""Composes a cloud stack: group, identities, storage, vault, registry, workspace, clusters."""

from __future__ import annotations

import pulumi
from pulumi_azure_native import resources

from infra.cloud.access import Access, AccessArgs, People, PeopleArgs, Scope, Scopes
from infra.cloud.account import Account, find_account, require_group_inside
from infra.cloud.alerts import Alerts, AlertsArgs
from infra.cloud.aliases import without_aliases
from infra.cloud.budget import Budget, BudgetArgs
from infra.cloud.cluster import CloudCluster, CloudClusterArgs, ClusterHold
from infra.cloud.context import Context, make_context
from infra.cloud.creation_hooks import CreationQueue
from infra.cloud.identity import Identities, IdentitiesArgs
from infra.cloud.interfaces import Interfaces
from infra.cloud.locks import Locks
from infra.cloud.monitoring import Monitoring, MonitoringArgs
from infra.cloud.network import Network, NetworkArgs
from infra.cloud.policy_assignments import PolicyAssignments, PolicyAssignmentsArgs
from infra.cloud.registry import Registry, RegistryArgs
from infra.cloud.settings import CloudSettings
from infra.cloud.storage import RUNS_CONTAINER, Storage, StorageArgs
from infra.cloud.vault import Vault, VaultArgs
from infra.cloud.workspace import Workspace, WorkspaceArgs

DATA_CONTAINER = "data"


class CloudPlatform(pulumi.ComponentResource):
    """Declare the resources that `launch` needs on Azure; in prod a `destroy` deletes none of them."""

    def __init__(
        self, name: str, settings: CloudSettings, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        account = find_account()
        require_group_inside(settings.existing.resource_group, account, stack=settings.stack)
        context = make_context(settings, subscription_id=account.subscription_id)
        is_prod = settings.stage == "prod"
        super().__init__(
            "trainyard:cloud:Platform",
            name,
            # In the state, so that it alone says where a half-made stack lies.
            {
                "subscriptionId": account.subscription_id,
                "resourceGroup": context.names.resource_group,
                **_existing(settings),
            },
            pulumi.ResourceOptions.merge(
                opts,
                pulumi.ResourceOptions(
                    # Children inherit it: the group first, which would take all in it along.
                    protect=is_prod or None,
                    transformations=[without_aliases],
                ),
            ),
        )
        self._child = pulumi.ResourceOptions(parent=self)
        self.context = context
        self.data_container, self.runs_container = DATA_CONTAINER, RUNS_CONTAINER
        self.group = self._group(name, context)
        self.budget = Budget(
            name, BudgetArgs(context=context, resource_group=self.group), self._child
        )
        self.monitoring = Monitoring(
            name, MonitoringArgs(context=context, resource_group=self.group), self._child
        )
        interfaces = self._interfaces(name, context)
        self._make_parts(name, context, account, interfaces)
        scopes = self._scopes()
        self.access = Access(
            f"{name}-access",
            AccessArgs(context=context, identities=self.identities, scopes=scopes),
            self._child,
        )
        self.workspace = self._make_workspace(name, scopes, interfaces)
        self.people = People(
            f"{name}-people",
            PeopleArgs(context=context, scopes=scopes, workspace=self.workspace.scope),
            self._child,
        )
        self.clusters = self._make_clusters(context)
        self._watch(name)
        if is_prod:
            ClusterHold(f"{name}-cluster-hold", self.clusters.values(), self._child)
        self.register_outputs({})

    def _group(self, name: str, context: Context) -> resources.ResourceGroup:
        existing = context.settings.existing.resource_group
        if existing:
            return resources.ResourceGroup.get(f"{name}-group", existing, opts=self._child)
        return resources.ResourceGroup(
            f"{name}-group",
            resource_group_name=context.names.resource_group,
            location=context.settings.location,
            tags=dict(context.tags),
            opts=self._child,
        )

    def _interfaces(self, name: str, context: Context) -> Interfaces:
        stage = context.settings.stage
        network = NetworkArgs(context=context, resource_group=self.group)
        return Interfaces(
            name=name,
            platform=self,
            network=Network(f"{name}-network", network, self._child)
            if context.is_private
            else None,
            monitoring=self.monitoring if stage != "dev" else None,
            locks=Locks(f"{name}-lock", self._child) if stage == "prod" else None,
        )

    def _make_parts(
        self, name: str, context: Context, account: Account, interfaces: Interfaces
    ) -> None:
        group, names, child = self.group, context.names, self._child
        self.identities = Identities(
            f"{name}-identity", IdentitiesArgs(context=context, resource_group=group), child
        )
        self.data = Storage(
            f"{name}-data",
            StorageArgs(
                context=context,
                account_name=names.data_account,
                containers=(DATA_CONTAINER, RUNS_CONTAINER),
                purpose="data",
                resource_group=group,
                interfaces=interfaces,
            ),
            child,
        )
        self.workspace_storage = Storage(
            f"{name}-workspace-storage",
            StorageArgs(
                context=context,
                account_name=names.workspace_account,
                containers=(),
                purpose="workspace",
                resource_group=group,
                interfaces=interfaces,
            ),
            child,
        )
        self.vault = Vault(
            name,
            VaultArgs(
                context=context,
                tenant_id=account.tenant_id,
                resource_group=group,
                interfaces=interfaces,
            ),
            child,
        )
        self.registry = Registry(
            name,
            RegistryArgs(context=context, resource_group=group, interfaces=interfaces),
            child,
        )

    def _make_workspace(self, name: str, scopes: Scopes, interfaces: Interfaces) -> Workspace:
        return Workspace(
            name,
            WorkspaceArgs(
                context=self.context,
                identities=self.identities,
                scopes=scopes,
                containers=(DATA_CONTAINER, RUNS_CONTAINER),
                depends_on=[
                    *self.data.ready,
                    *self.workspace_storage.ready,
                    *self.vault.ready,
                    *self.registry.ready,
                    self.monitoring.app_insights,
                    *self.access.workspace,
                ],
                interfaces=interfaces,
            ),
            self._child,
        )

    def _scopes(self) -> Scopes:
        return Scopes(
            group=Scope(id=self.context.names.group_id, resource=self.group),
            data_account=self.data.scope,
            data_container=self.data.container_scope(DATA_CONTAINER),
            runs_container=self.data.container_scope(RUNS_CONTAINER),
            workspace_account=self.workspace_storage.scope,
            workspace_endpoints={
                group: Scope(id=each.endpoint_id, resource=each.endpoint)
                for group, each in self.workspace_storage.endpoints.items()
            },
            key_vault=self.vault.scope,
            registry=self.registry.scope,
            app_insights=self.monitoring.app_insights_scope,
        )

    def _make_clusters(self, context: Context) -> dict[str, CloudCluster]:
        # Clusters that join the workspace's network at the same time may time out.
        hooks = CreationQueue("clusters").hooks()
        return {
            key: CloudCluster(
                f"cluster-{key}",
                CloudClusterArgs(
                    context=context,
                    key=key,
                    settings=settings,
                    identities=self.identities,
                    # Nodes read images and storage as soon as they are there, so their roles come before.
                    depends_on=[*self.workspace.ready, *self.access.nodes[settings.identity]],
                    hooks=hooks,
                ),
                pulumi.ResourceOptions(parent=self, protect=False),
            )
            for key, settings in context.settings.clusters.items()
        }

    def _watch(self, name: str) -> None:
        workspace = self.workspace.scope
        Alerts(
            f"{name}-alerts",
            AlertsArgs(context=self.context, workspace=workspace),
            self._child,
        )
        if self.context.settings.existing.resource_group:
            return  # others' resources stand in it, too
        group = Scope(id=self.context.names.group_id, resource=self.group)
        PolicyAssignments(
            f"{name}-policy",
            PolicyAssignmentsArgs(context=self.context, group=group, workspace=workspace),
            self._child,
        )


def _existing(settings: CloudSettings) -> dict[str, list[str]]:
    """List the ids that the stack uses and has not made, for the rules that judge it."""
    used = settings.existing
    ids = (used.resource_group, used.log_analytics, used.registry, used.key_vault)
    found = [each for each in ids if each]
    return {"existing": found} if found else {}
