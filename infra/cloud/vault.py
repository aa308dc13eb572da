"""Declares the key vault: roles instead of access policies, and recovery of deleted secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pulumi
from pulumi_azure_native import keyvault

from infra.cloud.access import Scope
from infra.cloud.context import Context
from infra.cloud.interfaces import Interfaces
from infra.cloud.monitoring import VAULT_CATEGORIES
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
    interfaces: Interfaces


class Vault(pulumi.ComponentResource):
    """A vault for the workspace's secrets and for those that clusters may read.

    One that is there already keeps its own settings, logs and lock.
    """

    def __init__(
        self, name: str, args: VaultArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:cloud:Vault", name, None, opts)
        context, interfaces = args.context, args.interfaces
        existing = context.settings.existing.key_vault
        self.vault_id = existing or context.names.id_of(
            "Microsoft.KeyVault/vaults", context.names.key_vault
        )
        self.vault = (
            keyvault.Vault.get(f"{name}-vault", existing, opts=pulumi.ResourceOptions(parent=self))
            if existing
            else self._make(name, args)
        )
        after: list[pulumi.Resource] = [self.vault]
        if not existing:
            interfaces.log("vault", self.vault_id, VAULT_CATEGORIES, after=after)
            interfaces.lock("vault", self.vault_id, after=after)
        endpoints = interfaces.connect(
            self.vault_id, {"vault": "vault"}, after=after, is_existing=bool(existing)
        )
        self.scope = Scope(id=self.vault_id, resource=self.vault)
        self.ready = [*after, *(each.names for each in endpoints.values())]
        self.uri = self.vault.properties.vault_uri
        self.register_outputs({"uri": self.uri})

    def _make(self, name: str, args: VaultArgs) -> keyvault.Vault:
        context = args.context
        stage = context.settings.stage
        return keyvault.Vault(
            f"{name}-vault",
            vault_name=context.names.key_vault,
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
