"""Declares the key vault: roles instead of access policies, and recovery of deleted secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pulumi
from pulumi_azure_native import keyvault

from infra.cloud.context import Context
from infra.cloud.resource_options import replaced_with

if TYPE_CHECKING:
    from pulumi_azure_native.resources import ResourceGroup

    from infra.cloud.settings import Stage

_DELETED_DAYS: Mapping[Stage, int] = {"dev": 7, "test": 7, "prod": 90}


@dataclass(frozen=True, kw_only=True)
class VaultArgs:
    """The group that the vault is made in, and the tenant it trusts."""

    context: Context
    tenant_id: str
    resource_group: ResourceGroup


class Vault(pulumi.ComponentResource):
    """A vault for the workspace's secrets and for those that clusters may read."""

    def __init__(
        self, name: str, args: VaultArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:cloud:Vault", name, None, opts)
        context = args.context
        stage = context.settings.stage
        vault_name = context.names.key_vault
        self.vault_id = context.names.id_of("Microsoft.KeyVault/vaults", vault_name)
        self.uri = f"https://{vault_name}.vault.azure.net/"
        self.vault = keyvault.Vault(
            f"{name}-vault",
            vault_name=vault_name,
            resource_group_name=context.names.resource_group,
            location=context.settings.location,
            properties=keyvault.VaultPropertiesArgs(
                tenant_id=args.tenant_id,
                sku=keyvault.SkuArgs(family="A", name=keyvault.SkuName.STANDARD),
                access_policies=[],
                enable_rbac_authorization=True,
                enable_soft_delete=True,
                soft_delete_retention_in_days=_DELETED_DAYS[stage],
                # Azure takes true or nothing, and never takes it back.
                enable_purge_protection=None if stage == "dev" else True,
                enabled_for_deployment=False,
                enabled_for_disk_encryption=False,
                enabled_for_template_deployment=False,
                network_acls=keyvault.NetworkRuleSetArgs(
                    default_action="Deny",
                    bypass="AzureServices",
                    ip_rules=[
                        keyvault.IPRuleArgs(value=address)
                        for address in context.settings.allowed_ips
                    ],
                ),
                public_network_access="Disabled" if context.is_private else "Enabled",
            ),
            tags=context.tags,
            opts=replaced_with(self, args.resource_group, retained=stage == "prod"),
        )
        self.register_outputs({"uri": self.uri})
