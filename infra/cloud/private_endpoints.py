"""Declares the private endpoints of the accounts, vault, registry and workspace."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_azure_native import resources

from infra.cloud.access import Scope
from infra.cloud.context import Context
from infra.cloud.network import Network, NetworkArgs
from infra.cloud.registry import Registry
from infra.cloud.storage import Storage
from infra.cloud.vault import Vault


@dataclass(frozen=True, kw_only=True)
class PrivateEndpointsArgs:
    """Resources that get a private endpoint."""

    context: Context
    resource_group: resources.ResourceGroup
    data: Storage
    workspace_storage: Storage
    vault: Vault
    registry: Registry


class PrivateEndpoints:
    """A network with its endpoints; whatever uses one of them waits for `ready`."""

    def __init__(self, name: str, args: PrivateEndpointsArgs, opts: pulumi.ResourceOptions) -> None:
        self._network = Network(
            name, NetworkArgs(context=args.context, resource_group=args.resource_group), opts
        )
        data, own = args.data, args.workspace_storage
        blob, dfs = (
            self._network.connect(f"data-{group}", data.account_id, group, data.settled)
            for group in ("blob", "dfs")
        )
        own_blob, own_file = (
            self._network.connect(f"workspace-storage-{group}", own.account_id, group, own.settled)
            for group in ("blob", "file")
        )
        vault = self._network.connect("vault", args.vault.vault_id, "vault", [args.vault.vault])
        registry = self._network.connect(
            "registry", args.registry.registry_id, "registry", [args.registry.registry]
        )
        self.workspace_storage = {
            "blob": Scope(id=own_blob.endpoint_id, resource=own_blob.endpoint),
            "file": Scope(id=own_file.endpoint_id, resource=own_file.endpoint),
        }
        self.ready: list[pulumi.Resource] = [
            endpoint.names for endpoint in (blob, dfs, own_blob, own_file, vault, registry)
        ]

    def open_workspace(self, workspace: Scope) -> None:
        """Add the workspace's endpoint, once the workspace is declared."""
        self._network.connect("workspace", workspace.id, "amlworkspace", [workspace.resource])
