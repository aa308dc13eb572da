"""Composes a cloud stack: group, identities, storage, vault, registry, workspace, clusters."""

from __future__ import annotations

import pulumi
from pulumi_azure_native import resources

from infra.cloud.access import Access, AccessArgs, People, PeopleArgs, Scope, Scopes
from infra.cloud.account import Account, find_account
from infra.cloud.aliases import without_aliases
from infra.cloud.budget import Budget, BudgetArgs
from infra.cloud.cluster import CloudCluster, CloudClusterArgs, ClusterHold
from infra.cloud.context import Context, make_context
from infra.cloud.identity import Identities, IdentitiesArgs
from infra.cloud.locks import Locks, LocksArgs
from infra.cloud.monitoring import (
    REGISTRY_CATEGORIES,
    STORAGE_CATEGORIES,
    VAULT_CATEGORIES,
    WORKSPACE_CATEGORIES,
    Monitoring,
    MonitoringArgs,
    diagnose,
)
from infra.cloud.private_endpoints import PrivateEndpoints, PrivateEndpointsArgs
from infra.cloud.registry import Registry, RegistryArgs
from infra.cloud.settings import CloudSettings
from infra.cloud.storage import RUNS_CONTAINER, Storage, StorageArgs
from infra.cloud.vault import Vault, VaultArgs
from infra.cloud.workspace import Workspace, WorkspaceArgs

DATA_CONTAINER = "data"


class CloudPlatform(pulumi.ComponentResource):
    """The resources that `launch` needs on Azure; in prod a `destroy` deletes none of them."""

    def __init__(
        self, name: str, settings: CloudSettings, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        account = find_account()
        context = make_context(settings, subscription_id=account.subscription_id)
        is_prod = settings.stage == "prod"
        super().__init__(
            "trainyard:cloud:Platform",
            name,
            # In the state, so that it alone says where a half-made stack lies.
            {
                "subscriptionId": account.subscription_id,
                "resourceGroup": context.names.resource_group,
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
        self.group = resources.ResourceGroup(
            f"{name}-group",
            resource_group_name=context.names.resource_group,
            location=settings.location,
            tags=dict(context.tags),
            opts=self._child,
        )
        self.budget = Budget(
            name, BudgetArgs(context=context, resource_group=self.group), self._child
        )
        self._make_parts(name, context, account)
        endpoints = self._make_private_endpoints(name) if context.is_private else None
        scopes = self._scopes(endpoints)
        ready: list[pulumi.Resource] = [*self._parts, *(endpoints.ready if endpoints else ())]
        self.access = Access(
            f"{name}-access",
            AccessArgs(context=context, identities=self.identities, scopes=scopes),
            self._child,
        )
        self.workspace = Workspace(
            name,
            WorkspaceArgs(
                context=context,
                identities=self.identities,
                scopes=scopes,
                containers={
                    # A datastore's name takes no dash; `launch` makes the same of a container's.
                    container.replace("-", "_"): container
                    for container in (DATA_CONTAINER, RUNS_CONTAINER)
                },
                depends_on=[*ready, *self.access.workspace],
            ),
            self._child,
        )
        self.people = People(
            f"{name}-people",
            PeopleArgs(context=context, scopes=scopes, workspace=self.workspace.scope),
            self._child,
        )
        if endpoints:
            endpoints.open_workspace(self.workspace.scope)
        self.clusters = self._make_clusters(context)
        if settings.stage != "dev":
            self._diagnose(name)
        if is_prod:
            self._lock(name)
            ClusterHold(f"{name}-cluster-hold", self.clusters.values(), self._child)
        self.register_outputs({})

    def _make_parts(self, name: str, context: Context, account: Account) -> None:
        group, names, child = self.group, context.names, self._child
        self.identities = Identities(
            f"{name}-identity", IdentitiesArgs(context=context, resource_group=group), child
        )
        self.monitoring = Monitoring(
            name, MonitoringArgs(context=context, resource_group=group), child
        )
        self.data = Storage(
            f"{name}-data",
            StorageArgs(
                context=context,
                account_name=names.data_account,
                containers=(DATA_CONTAINER, RUNS_CONTAINER),
                purpose="data",
                resource_group=group,
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
            ),
            child,
        )
        self.vault = Vault(
            name,
            VaultArgs(context=context, tenant_id=account.tenant_id, resource_group=group),
            child,
        )
        self.registry = Registry(name, RegistryArgs(context=context, resource_group=group), child)
        self._parts: list[pulumi.Resource] = [
            *self.data.settled,
            *self.workspace_storage.settled,
            self.vault.vault,
            self.registry.registry,
            self.monitoring.app_insights,
        ]

    def _make_private_endpoints(self, name: str) -> PrivateEndpoints:
        return PrivateEndpoints(
            f"{name}-network",
            PrivateEndpointsArgs(
                context=self.context,
                resource_group=self.group,
                data=self.data,
                workspace_storage=self.workspace_storage,
                vault=self.vault,
                registry=self.registry,
            ),
            self._child,
        )

    def _scopes(self, endpoints: PrivateEndpoints | None) -> Scopes:
        data, own = self.data, self.workspace_storage
        containers = {
            name: Scope(
                id=f"{data.account_id}/blobServices/default/containers/{name}", resource=container
            )
            for name, container in data.containers.items()
        }
        return Scopes(
            data_account=Scope(id=data.account_id, resource=data.account),
            data_container=containers[DATA_CONTAINER],
            runs_container=containers[RUNS_CONTAINER],
            workspace_account=Scope(id=own.account_id, resource=own.account),
            workspace_endpoints=endpoints.workspace_storage if endpoints else {},
            key_vault=Scope(id=self.vault.vault_id, resource=self.vault.vault),
            registry=Scope(id=self.registry.registry_id, resource=self.registry.registry),
            app_insights=Scope(
                id=self.monitoring.app_insights_id, resource=self.monitoring.app_insights
            ),
        )

    def _make_clusters(self, context: Context) -> dict[str, CloudCluster]:
        # The workspace makes its network with the first cluster, so its roles come before; nodes
        # read images and storage as soon as they are there, so theirs do too.
        ready = [self.workspace.workspace, self.workspace.role, *self.access.cluster]
        return {
            key: CloudCluster(
                f"cluster-{key}",
                CloudClusterArgs(
                    context=context,
                    key=key,
                    settings=settings,
                    identities=self.identities,
                    depends_on=ready,
                ),
                pulumi.ResourceOptions(parent=self, protect=False),
            )
            for key, settings in context.settings.clusters.items()
        }

    def _diagnose(self, name: str) -> None:
        blobs = "blobServices/default"
        for key, target, categories, after in (
            ("data", f"{self.data.account_id}/{blobs}", STORAGE_CATEGORIES, self.data.settled),
            (
                "workspace-storage",
                f"{self.workspace_storage.account_id}/{blobs}",
                STORAGE_CATEGORIES,
                self.workspace_storage.settled,
            ),
            ("vault", self.vault.vault_id, VAULT_CATEGORIES, (self.vault.vault,)),
            ("registry", self.registry.registry_id, REGISTRY_CATEGORIES, (self.registry.registry,)),
            (
                "workspace",
                self.workspace.scope.id,
                WORKSPACE_CATEGORIES,
                (self.workspace.workspace,),
            ),
        ):
            diagnose(
                f"{name}-{key}-diagnostics",
                target,
                categories,
                monitoring=self.monitoring,
                depends_on=after,
                parent=self,
            )

    def _lock(self, name: str) -> None:
        Locks(
            f"{name}-lock",
            LocksArgs(
                targets={
                    "data": self.data.account_id,
                    "workspace-storage": self.workspace_storage.account_id,
                    "vault": self.vault.vault_id,
                    "registry": self.registry.registry_id,
                },
                depends_on=self._parts,
            ),
            self._child,
        )
